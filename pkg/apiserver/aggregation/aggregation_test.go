// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// extension is an extension server that serves one resource of things.example.com.
type extension struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	ended    map[string]int // number of ended requests to paths that answer without an end, by path
}

func newExtension(t *testing.T, proxies *x509.CertPool) *extension {
	e := &extension{ended: map[string]int{}}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxies}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *extension) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.requests = append(e.requests, r.Clone(context.Background()))
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	const spec = `{"swagger":"2.0","info":{"title":"t","version":"v"},` +
		`"paths":{"/apis/things.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Thing"}}}}},"/apis/hidden.example.com/v1/":{}},"definitions":{"Thing":{"type":"object"}}}`
	switch r.URL.Path {
	case "/apis/things.example.com/v1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1",`+
			`"groupVersion":"things.example.com/v1","resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"]}]}`)
	case "/apis/things.example.com/v1/things":
		_, _ = io.WriteString(w, `{"kind":"ThingList","apiVersion":"things.example.com/v1","metadata":{},"items":[]}`)
	case "/apis/things.example.com/v1/elsewhere":
		http.Redirect(w, r, "https://192.0.2.9/", http.StatusFound)
	case "/apis/things.example.com/v1/upgrade":
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello "+
				r.Header.Get("X-Remote-User"))
	case "/apis/things.example.com/v1/stall":
		<-r.Context().Done()
		e.end(r.URL.Path)
	case "/apis/things.example.com/v1/endless", "/apis/endless.example.com/v1":
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for err := error(nil); err == nil; {
			_, err = w.Write(chunk)
		}
		e.end(r.URL.Path)
	case "/openapi/v2":
		_, _ = io.WriteString(w, spec)
	case "/openapi/v3":
		_, _ = io.WriteString(w,
			`{"paths":{"apis/things.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/things.example.com/v1?hash=X"},"apis/other/v1":{"serverRelativeURL":"/x"}}}`)
	case "/openapi/v3/apis/things.example.com/v1":
		_, _ = io.WriteString(w, `{"openapi":"3.0.0","info":{"title":"things"}}`)
	default:
		http.NotFound(w, r)
	}
}

func (e *extension) end(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended[path]++
}

// hasEnded reports whether a request to path, whose answer has no end, has ended.
func (e *extension) hasEnded(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended[path] > 0
}

// last returns the last request to a path, or nil.
func (e *extension) last(path string) *http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range slices.Backward(e.requests) {
		if r.URL.Path == path {
			return r
		}
	}
	return nil
}

// startServer runs an API server that has a client certificate for extension servers.
func startServer(t *testing.T) *testserver.Server {
	t.Helper()
	dir := t.TempDir()
	return testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		cert, key := testserver.ClientCertificate(t, filepath.Dir(c.ClientCAFile), "front-proxy")
		c.ProxyClientCert, c.ProxyClientKey = filepath.Join(dir, "proxy.crt"), filepath.Join(dir, "proxy.key")
		for name, data := range map[string][]byte{c.ProxyClientCert: cert, c.ProxyClientKey: key} {
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}})
}

func get(t *testing.T, cfg *rest.Config, path, accept string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func eventually(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) { return done(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func condition(s *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	if c := helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available); c != nil {
		return *c
	}
	return apiregistrationv1.APIServiceCondition{}
}

func TestOwnAPIServices(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := aggregatorclient.NewForConfigOrDie(s.Config).ApiregistrationV1().APIServices()
	apps, err := api.Get(t.Context(), "v1.apps", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := condition(apps); apps.Labels["kube-aggregator.kubernetes.io/automanaged"] != "onstart" ||
		apps.Spec.GroupPriorityMinimum != 17800 ||
		c.Status != apiregistrationv1.ConditionTrue || c.Reason != "Local" ||
		c.Message != "Local APIServices are always available" {
		t.Errorf("%v %+v %+v", apps.Labels, apps.Spec, c)
	}
	_, body := get(t, s.Config, "/apis", "")
	var list metav1.APIGroupList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Groups) < 3 || list.Groups[0].Name != "apiregistration.k8s.io" ||
		list.Groups[1].Name != "apps" || list.Groups[2].Name != "events.k8s.io" {
		t.Errorf("groups begin with %v", list.Groups)
	}
	priority := apps.DeepCopy()
	priority.Spec.GroupPriorityMinimum = 1
	if _, err := api.Update(t.Context(), priority, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a lower priority moves the group to the end", func(context.Context) bool {
		_, body := get(t, s.Config, "/apis", "")
		list = metav1.APIGroupList{}
		return json.Unmarshal([]byte(body), &list) == nil && list.Groups[len(list.Groups)-1].Name == "apps"
	})
}

// TestOptionalPriority checks that versions that are off by default have the priority within their group that
// they have in Kubernetes. Servers that share a store would otherwise overwrite each other's APIServices.
func TestOptionalPriority(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.RuntimeConfig = map[string]bool{"api/beta": true, "resource.k8s.io/v1alpha3": true}
	}})
	services := aggregatorclient.NewForConfigOrDie(s.Config).ApiregistrationV1().APIServices()
	for name, want := range map[string]int32{
		"v1.resource.k8s.io": 21, "v1beta2.resource.k8s.io": 15, "v1beta1.resource.k8s.io": 9,
		"v1alpha3.resource.k8s.io": 1, "v1beta1.certificates.k8s.io": 9, "v1beta1.storagemigration.k8s.io": 9,
	} {
		service, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if service.Spec.VersionPriority != want {
			t.Errorf("%s has priority %d, want %d", name, service.Spec.VersionPriority, want)
		}
	}
}

func TestExtensionServer(t *testing.T) {
	s := startServer(t)
	ca, err := os.ReadFile(filepath.Join(s.Dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	if _, body := get(t, s.Config, "/readyz?verbose", ""); !strings.Contains(body,
		"[+]poststarthook/aggregator-reload-proxy-client-cert ok\n") {
		t.Errorf("checks of a server that has a certificate for others: %s", body)
	}
	e := newExtension(t, pool)
	at, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	api := aggregatorclient.NewForConfigOrDie(s.Config).ApiregistrationV1().APIServices()
	port := ptr.To(int32(443))
	if _, err := api.Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.things.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "things.example.com", Version: "v1", GroupPriorityMinimum: 2000, VersionPriority: 10,
			InsecureSkipTLSVerify: true,
			Service:               &apiregistrationv1.ServiceReference{Namespace: "default", Name: "things", Port: port},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes := func(reason, message string) {
		t.Helper()
		var c apiregistrationv1.APIServiceCondition
		eventually(t, reason, func(ctx context.Context) bool {
			got, err := api.Get(ctx, "v1.things.example.com", metav1.GetOptions{})
			if err == nil {
				c = condition(got)
			}
			return c.Reason == reason
		})
		if c.Message != message {
			t.Errorf("%s: %s", reason, c.Message)
		}
	}
	becomes("ServiceNotFound", `service/things in "default" is not present`)
	// The aggregator routes by the condition Available of the APIService, which it sees with a delay.
	eventually(t, "no answer without a service", func(context.Context) bool {
		code, body := get(t, s.Config, "/apis/things.example.com/v1/things", "")
		return code == http.StatusServiceUnavailable && body == "service unavailable\n"
	})
	// The extension server listens on loopback. Endpoints may not contain loopback addresses, so the
	// service is an ExternalName for localhost.
	if _, err := s.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "things"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, number, err := net.SplitHostPort(at.Host)
	if err != nil {
		t.Fatal(err)
	}
	setPort(t, api, number)
	becomes("Passed", "all checks passed")

	const path = "/apis/things.example.com/v1/things"
	bob := s.UserConfig(t, "bob", "system:masters")
	eventually(t, "the extension server's answer", func(context.Context) bool {
		code, body := get(t, bob, path, "")
		return code == http.StatusOK && strings.Contains(body, "ThingList")
	})
	if r := e.last(path); r.Header.Get("X-Remote-User") != "bob" ||
		!slices.Equal(r.Header.Values("X-Remote-Group"), []string{"system:masters", "system:authenticated"}) ||
		r.Header.Get("Authorization") != "" ||
		r.TLS.PeerCertificates[0].Subject.CommonName != "front-proxy" {
		t.Errorf("the server was asked with %v", r.Header)
	}
	if code, _ := get(t, bob, "/apis/things.example.com/v1/elsewhere", ""); code != http.StatusBadGateway {
		t.Errorf("a redirect was answered with %d", code)
	}
	if code, body := get(t, s.UserConfig(t, "nobody"), path, ""); code != http.StatusForbidden {
		t.Errorf("a user without rights: %d %s", code, body)
	}
	eventually(t, "the metrics include the APIService", func(context.Context) bool {
		_, metrics := get(t, s.Config, "/metrics", "")
		return strings.Contains(metrics, `aggregator_unavailable_apiservice{name="v1.things.example.com"} 0`)
	})
	checkUpgrade(t, bob)
	checkDocuments(t, s.Config)
	checkEndless(t, s.Config, e)

	e.CloseClientConnections()
	if err := api.Delete(t.Context(), "v1.things.example.com", metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	eventually(t, "the group goes", func(context.Context) bool {
		code, _ := get(t, s.Config, path, "")
		_, groups := get(t, s.Config, "/apis", "")
		return code == http.StatusNotFound && !strings.Contains(groups, "things.example.com")
	})
}

// TestUnanswered creates APIServices for groups and versions that no server serves. Discovery must
// list them, and aggregated discovery must mark versions of extension servers as stale.
func TestUnanswered(t *testing.T) {
	s := startServer(t)
	api := aggregatorclient.NewForConfigOrDie(s.Config).ApiregistrationV1().APIServices()
	nobody := &apiregistrationv1.ServiceReference{Namespace: "default", Name: "nobody", Port: ptr.To(int32(443))}
	for _, spec := range []apiregistrationv1.APIServiceSpec{
		{Group: "here.example.com", Version: "v1", GroupPriorityMinimum: 10, VersionPriority: 10},
		{Group: "batch", Version: "v9", GroupPriorityMinimum: 10, VersionPriority: 10},
		{Group: "policy", Version: "v9", GroupPriorityMinimum: 10, VersionPriority: 100, Service: nobody,
			InsecureSkipTLSVerify: true},
	} {
		if _, err := api.Create(t.Context(),
			&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: spec.Version + "." + spec.Group},
				Spec: spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct {
		path, accept string
		code         int
		body         string
	}{
		{"/apis", "", 200, `{"name":"here.example.com","versions":[{"groupVersion":"here.example.com/v1","version":"v1"}],`},
		{"/apis/here.example.com", "", 200, `{"groupVersion":"here.example.com/v1","version":"v1"}`},
		{"/apis/here.example.com/v1", "", 404, "404 page not found"},
		{"/apis/batch", "", 200,
			`"versions":[{"groupVersion":"batch/v1","version":"v1"},{"groupVersion":"batch/v9","version":"v9"}]`},
		{"/apis/policy", "", 200, `"preferredVersion":{"groupVersion":"policy/v9","version":"v9"}`},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", 200,
			`{"metadata":{"name":"policy"},"versions":[{"version":"v9","freshness":"Stale"},{"version":"v1",`},
		{"/apis/policy/v9/things", "", 503, "service unavailable"},
		{"/openapi/v3/apis/policy/v9", "", 404, ""},
	} {
		eventually(t, want.path+" has "+want.body, func(context.Context) bool {
			code, body := get(t, s.Config, want.path, want.accept)
			return code == want.code && strings.Contains(body, want.body)
		})
	}
}

// setPort sets the port of the APIService to that of the extension server.
func setPort(t *testing.T, api interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		sub ...string) (*apiregistrationv1.APIService, error)
}, port string) {
	t.Helper()
	if _, err := api.Patch(t.Context(), "v1.things.example.com", "application/merge-patch+json",
		[]byte(`{"spec":{"service":{"port":`+port+`}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func checkUpgrade(t *testing.T, cfg *rest.Config) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(cfg.Host, "https://"), tlsConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /apis/things.example.com/v1/upgrade HTTP/1.1\r\nHost: "+
		"x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(body), "HTTP/1.1 101") || !strings.HasSuffix(string(body), "hello bob") {
		t.Errorf("upgrade: %v %q", err, body)
	}
}

// checkEndless sends requests that an extension server never answers or answers without an end, and
// checks that they end when the client disconnects. It also checks that discovery marks a group as
// stale if its discovery document has no end, and still shows the other groups.
func checkEndless(t *testing.T, cfg *rest.Config, e *extension) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/apis/things.example.com/v1/stall", "/apis/things.example.com/v1/endless"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "stall") {
			go func() {
				_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true,
					func(context.Context) (bool, error) { return e.last(path) != nil, nil })
				cancel()
			}()
		}
		if resp, err := client.Do(r); err == nil {
			if n, err := io.CopyN(io.Discard, resp.Body, 4<<20); err != nil {
				t.Errorf("%s: %d bytes, %v", path, n, err)
			}
			_ = resp.Body.Close()
		}
		cancel()
		eventually(t, path+" ends", func(context.Context) bool { return e.hasEnded(path) })
	}
	api := aggregatorclient.NewForConfigOrDie(cfg).ApiregistrationV1().APIServices()
	things, err := api.Get(t.Context(), "v1.things.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	things.ObjectMeta, things.Spec.Group = metav1.ObjectMeta{Name: "v1.endless.example.com"}, "endless.example.com"
	if _, err := api.Create(t.Context(), things, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "discovery does without the group that never ends", func(context.Context) bool {
		_, body := get(t, cfg, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, rest, found := strings.Cut(body, `"endless.example.com"`)
		group, _, _ := strings.Cut(rest, `"metadata"`)
		return e.hasEnded("/apis/endless.example.com/v1") && found &&
			strings.Contains(group, `"freshness":"Stale"`) && strings.Contains(body, `"resource":"things"`)
	})
	if err := api.Delete(t.Context(), "v1.endless.example.com", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func checkDocuments(t *testing.T, cfg *rest.Config) {
	t.Helper()
	eventually(t, "discovery includes the group", func(context.Context) bool {
		_, body := get(t, cfg, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		return strings.Contains(body, `{"version":"v1","resources":[{"resource":"things",`+
			`"responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Namespaced","singularResource":"thing","verbs":["get","list"]}],"freshness":"Current"}`)
	})
	if _, body := get(t, cfg, "/apis", ""); !strings.Contains(body, `{"name":"things.example.com",`+
		`"versions":[{"groupVersion":"things.example.com/v1","version":"v1"}],`+
		`"preferredVersion":{"groupVersion":"things.example.com/v1","version":"v1"}}`) {
		t.Errorf("groups: %s", body)
	}
	if code, body := get(t, cfg, "/apis/things.example.com", ""); code != http.StatusOK ||
		!strings.Contains(body, `"kind":"APIGroup"`) {
		t.Errorf("group: %d %s", code, body)
	}
	if _, body := get(t, cfg, "/", ""); !strings.Contains(body, `"/apis/things.example.com/v1"`) ||
		!strings.Contains(body, `"/apis/apps/v1"`) || strings.Contains(body, "/debug/") {
		t.Errorf("paths: %s", body)
	}
	eventually(t, "OpenAPI includes the group", func(context.Context) bool {
		_, index := get(t, cfg, "/openapi/v3", "")
		return strings.Contains(index,
			`"apis/things.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/things.example.com/v1?hash=X"}`) &&
			!strings.Contains(index, "apis/other/v1")
	})
	if _, body := get(t, cfg, "/openapi/v3/apis/things.example.com/v1?hash=X", ""); !strings.Contains(body,
		`"title":"things"`) {
		t.Errorf("OpenAPI v3: %s", body)
	}
	_, merged := get(t, cfg, "/openapi/v2", "application/json")
	for _, want := range []string{`"/apis/things.example.com/v1/things"`,
		`"/api/v1/namespaces/{namespace}/pods"`, `"Thing"`} {
		if !strings.Contains(merged, want) {
			t.Errorf("OpenAPI v2 lacks %s", want)
		}
	}
	if strings.Contains(merged, "hidden.example.com") {
		t.Error("OpenAPI v2 includes a group that is not the server's")
	}
}
