// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/bootstrap"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
)

func get(t *testing.T, cfg *rest.Config, path string) (status int, body string) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, body := testserver.Do(t, client, req)
	return resp.StatusCode, body
}

// TestNoFairness checks a server without priority and fairness: its health checks, and that it
// still maintains flow schemas for other servers.
func TestNoFairness(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.PriorityAndFairness = false }})
	if _, body := get(t, s.Config, "/readyz?verbose"); strings.Contains(body, "priority-and-fairness-filter") ||
		!strings.Contains(body, "informers ok\n[+]poststarthook/max-in-flight-filter ok\n") ||
		!strings.Contains(body, "[+]poststarthook/priority-and-fairness-config-producer ok\n") {
		t.Error(body)
	}
	if status, body := get(t, s.Config, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all"); status != 200 {
		t.Error(body)
	}
}

func TestPaths(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	anonymous := s.TokenConfig("")
	for _, tc := range []struct {
		cfg          *rest.Config
		path         string
		status       int
		has, hasNone string
	}{
		{anonymous, "/readyz", 200, "ok", "ping"},
		{anonymous, "/livez?verbose", 200, "[+]poststarthook/rbac/bootstrap-roles ok\n", "[-]"},
		{anonymous, "/livez?verbose", 200, "[+]ping ok\n[+]log ok\n[+]loopback-serving-certificate " +
			"ok\n[+]etcd ok\n[+]poststarthook/start-apiserver-admission-initializer ok\n", "etcd-readiness"},
		{anonymous, "/readyz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness " +
			"ok\n[+]informer-sync ok\n[+]poststarthook/start-apiserver-admission-initializer ok\n" +
			"[+]poststarthook/generic-apiserver-start-informers " +
			"ok\n[+]poststarthook/priority-and-fairness-config-consumer ok\n", "authorization-sync"},
		{s.Config, "/readyz/poststarthook/start-kube-apiserver-identity-lease-controller", 200, "ok", "["},
		{anonymous, "/healthz?verbose&exclude=etcd&exclude=nothing", 200, "[+]etcd excluded: ok\n", "[-]"},
		{anonymous, "/healthz?verbose&exclude=nothing", 200,
			"warn: some health checks cannot be excluded: no matches for \"nothing\"\nhealthz check passed\n", "[-]"},
		{s.Config, "/readyz/ping", 200, "ok", "["},
		{anonymous, "/metrics", 403, `forbidden: User \"system:anonymous\" cannot get path \"/metrics\"`, ""},
		{anonymous, "/debug/pprof/", 403, `cannot get path`, ""},
		{s.Config, "/metrics", 200, "apiserver_request_total", ""},
		{s.Config, "/version", 200, `"gitVersion": "v1.37.2+keelson.`, ""},
		{s.Config, "/", 200, `"/openid/v1/jwks"`, ""},
		{s.Config, "/statusz", 200, " /flagz /healthz /livez /metrics /readyz /statusz /version", "/debug"},
		{s.Config, "/nowhere", 404, "404 page not found\n", ""},
		{s.Config, "/.well-known/openid-configuration", 200, `"issuer":"https://kubernetes.default.svc.cluster.local"`, ""},
	} {
		t.Run(tc.path, func(t *testing.T) {
			status, body := get(t, tc.cfg, tc.path)
			if status != tc.status || !strings.Contains(body, tc.has) ||
				(tc.hasNone != "" && strings.Contains(body, tc.hasNone)) {
				t.Errorf("%d\n%s", status, body)
			}
		})
	}
}

// TestAdvertisedAddress checks that discovery documents contain the advertised address, even if it
// is a loopback address.
func TestAdvertisedAddress(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.AdvertiseAddress = "127.0.0.1" }})
	for path, want := range map[string]string{
		"/api": `"serverAddress":"127.0.0.1:`, "/.well-known/openid-configuration": `"jwks_uri":"https://127.0.0.1:`,
	} {
		if _, body := get(t, s.Config, path); !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s in it", path, body, want)
		}
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	// This client offers only old versions of TLS.
	_, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"),
		&tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10, InsecureSkipVerify: true})
	if err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

// TestBootstrapIsIdempotent checks that a second start over the same store changes no existing
// objects, restores missing objects, and ignores objects that are excluded from updates by an
// annotation.
func TestBootstrapIsIdempotent(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	snapshot := func(c *testserver.Server) map[string]string {
		out := map[string]string{}
		roles, err := c.Client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range roles.Items {
			out["role "+r.Name] = r.ResourceVersion
		}
		bindings, err := c.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bindings.Items {
			out["binding "+b.Name] = b.ResourceVersion
		}
		namespaces, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range namespaces.Items {
			out["namespace "+n.Name] = n.ResourceVersion
		}
		return out
	}
	before := snapshot(s)
	roles := s.Client.RbacV1().ClusterRoles()
	if err := roles.Delete(ctx, "system:kube-dns", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	less, err := roles.Get(ctx, "system:node-proxier", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := len(less.Rules)
	less.Rules = less.Rules[:1]
	if _, err := roles.Update(ctx, less, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	own, err := roles.Get(ctx, "system:volume-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own.Annotations["rbac.authorization.kubernetes.io/autoupdate"] = "false"
	own.Rules = own.Rules[:1]
	if _, err := roles.Update(ctx, own, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := map[string]bool{"role system:kube-dns": true, "role system:node-proxier": true,
		"role system:volume-scheduler": true}
	s.Stop(t)

	again := testserver.Start(t, testserver.Options{KV: s.KV, Dir: s.Dir})
	after := snapshot(again)
	for k, rv := range before {
		if now, ok := after[k]; !ok || (now != rv && !changed[k]) {
			t.Errorf("%s: revision %s, now %q", k, rv, now)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d objects, now %d", len(before), len(after))
	}
	if r, err := again.Client.RbacV1().ClusterRoles().Get(ctx, "system:node-proxier",
		metav1.GetOptions{}); err != nil || len(r.Rules) < all {
		t.Errorf("rules were not put back: %v, %v", r, err)
	}
	if r, err := again.Client.RbacV1().ClusterRoles().Get(ctx, "system:volume-scheduler",
		metav1.GetOptions{}); err != nil || len(r.Rules) != 1 {
		t.Errorf("a role that opted out was changed: %v, %v", r, err)
	}
}

func TestDefaultPolicy(t *testing.T) {
	p, err := bootstrap.DefaultPolicy(func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]bool{}
	for _, r := range p.ClusterRoles {
		if roles[r.Name] {
			t.Errorf("role %s is there twice", r.Name)
		}
		roles[r.Name] = true
	}
	for _, b := range p.ClusterRoleBindings {
		if !roles[b.RoleRef.Name] {
			t.Errorf("binding %s refers to no role: %s", b.Name, b.RoleRef.Name)
		}
	}
	for _, want := range []string{"cluster-admin", "admin", "edit", "view", "system:node",
		"system:kube-scheduler", "system:controller:replicaset-controller"} {
		if !roles[want] {
			t.Errorf("no role %s", want)
		}
	}
}

// TestPolicyOfFeature checks that a feature adds rules to roles that exist without it, and roles of
// its own.
func TestPolicyOfFeature(t *testing.T) {
	rules := map[string]int{}
	for _, on := range []bool{false, true} {
		p, err := bootstrap.DefaultPolicy(func(feature string) bool { return on && feature == features.GenericWorkload })
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.ClusterRoles {
			if on {
				rules[r.Name] += len(r.Rules)
			} else {
				rules[r.Name] -= len(r.Rules)
			}
		}
	}
	for role, more := range map[string]int{"system:aggregate-to-view": 1, "system:aggregate-to-edit": 1,
		"system:kube-scheduler": 2, "system:controller:podgroup-protection-controller": 2, "view": 0} {
		if rules[role] != more {
			t.Errorf("%s has %d more rules with the feature, want %d", role, rules[role], more)
		}
	}
}

func TestKubernetesService(t *testing.T) {
	one := testserver.Start(t, testserver.Options{})
	two := testserver.Start(t,
		testserver.Options{KV: one.KV, Dir: one.Dir, Configure: func(c *config.Config) { c.AdvertiseAddress = "192.0.2.7" }})
	addresses := func() string {
		var out []string
		s, err := one.Client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
		return strings.Join(out, " ")
	}
	if got := addresses(); got != "192.0.2.1 192.0.2.7" {
		t.Errorf("two servers: %s", got)
	}
	two.Stop(t)
	if got := addresses(); got != "192.0.2.1" {
		t.Errorf("after one has left: %s", got)
	}
}

func TestBadConfigurationStartsNothing(t *testing.T) {
	cfg := config.Default()
	cfg.AuthorizationModes = []string{"RBAC", "Guess"}
	_, err := apiserver.New(cfg, apiserver.Deps{})
	if err == nil || !strings.Contains(err.Error(), `authorization-mode "Guess"`) ||
		!strings.Contains(err.Error(), "--service-account-issuer") {
		t.Errorf("got %v", err)
	}
}

// TestUnreadableFiles checks that unreadable files are reported with the messages and in the order
// of Kubernetes' server.
func TestUnreadableFiles(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	key, ca := filepath.Join(s.Dir, "sa.key"), filepath.Join(s.Dir, "ca.crt")
	none := filepath.Join(t.TempDir(), "none")
	missing := "open " + none + ": no such file or directory"
	for name, tc := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"signing key": {func(c *config.Config) { c.ServiceAccountSignKey, c.ClientCAFile = none, none },
			"failed to parse service-account-issuer-key-file: " + missing},
		"no signing key": {func(c *config.Config) { c.ServiceAccountSignKey = ca },
			"failed to parse service-account-issuer-key-file: error reading private key file " + ca +
				": data does not contain a valid RSA or ECDSA private key"},
		"certificate": {func(c *config.Config) {
			c.TLSCertFile, c.TLSKeyFile, c.TracingConfig = none, none,
				none
		}, missing},
		"spans": {func(c *config.Config) { c.TracingConfig, c.EncryptionConfig = none, none },
			fmt.Sprintf("failed to read tracing config: unable to read tracing configuration from %q: ", none) + missing},
		"no authority": {func(c *config.Config) { c.ClientCAFile = key },
			fmt.Sprintf(
				"error loading CA bundle for %q: data does not contain any valid RSA or ECDSA certificates",
				"client-ca-bundle::"+key)},
		"proxies": {func(c *config.Config) { c.RequestHeader.ClientCAFile = key },
			fmt.Sprintf(
				"error loading CA bundle for %q: data does not contain any valid RSA or ECDSA certificates",
				"request-header::"+key)},
		"verifying key": {func(c *config.Config) {
			c.ServiceAccountKeyFiles, c.TokenAuthFile = []string{none},
				none
		}, missing},
		"issuers": {func(c *config.Config) { c.Authentication.File = none },
			fmt.Sprintf("failed to load authentication configuration from file %q: ", none) + missing},
		"policies": {func(c *config.Config) {
			c.AuthorizationModes,
				c.Authorization.PolicyFile = []string{"ABAC"}, none
		}, "invalid authorization config: " + missing},
		"authorizers": {func(c *config.Config) { c.Authorization.File = none }, missing},
		"no authorizers": {func(c *config.Config) { c.Authorization.File = key },
			"failed to load AuthorizationConfiguration from file: couldn't get version/kind; json parse " +
				"error: json: cannot unmarshal string into Go value of type struct { APIVersion string " +
				"\"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"},
		"audit": {func(c *config.Config) { c.Audit.PolicyFile, c.AdmissionConfig = none, none },
			fmt.Sprintf("loading audit policy file: failed to read file path %q: ", none) + missing},
		"tokens": {func(c *config.Config) { c.TokenAuthFile = none }, missing},
		"plugins": {func(c *config.Config) { c.AdmissionConfig = none },
			fmt.Sprintf("failed to apply admission: failed to read plugin config: unable to read admission "+
				"control configuration from %q [%s]", none, missing)},
		"kubelets": {func(c *config.Config) { c.KubeletClientKey = none },
			`problem initializing API group "": ` + missing},
		"no kubelets": {func(c *config.Config) { c.KubeletCAFile = key },
			`problem initializing API group "": unable to load root certificates: no valid certificate authority data seen`},
		"encryption": {func(c *config.Config) { c.EncryptionConfig = none },
			fmt.Sprintf("error while parsing file: error while loading file: error reading encryption "+
				"provider configuration file %q: ", none) + missing},
		"etcd": {func(c *config.Config) {
			c.EtcdServers, c.EtcdCAFile = []string{"https://127.0.0.1:1"}, none
		}, "error creating storage factory: " + missing},
	} {
		cfg := config.Default()
		cfg.ServiceAccountIssuers, cfg.ServiceAccountSignKey,
			cfg.ServiceAccountKeyFiles = []string{"https://a"}, key, []string{key}
		// With a certificate, the server need not generate an RSA key, which takes long.
		cfg.TLSCertFile, cfg.TLSKeyFile = filepath.Join(s.Dir, "server.crt"), filepath.Join(s.Dir, "server.key")
		tc.change(&cfg)
		deps := apiserver.Deps{KV: s.KV, Listener: listen(t)}
		if cfg.EtcdCAFile != "" {
			deps.KV = nil
		}
		server, err := apiserver.New(cfg, deps)
		if err == nil {
			err = server.Run(t.Context())
		}
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

// TestNoStore checks the error of a server that has neither a store nor an etcd to start.
func TestNoStore(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	cfg := config.Default()
	cfg.ServiceAccountIssuers, cfg.ServiceAccountSignKey = []string{"https://a"}, filepath.Join(s.Dir, "sa.key")
	cfg.ServiceAccountKeyFiles = []string{cfg.ServiceAccountSignKey}
	cfg.TLSCertFile, cfg.TLSKeyFile = filepath.Join(s.Dir, "server.crt"), filepath.Join(s.Dir, "server.key")
	server, err := apiserver.New(cfg, apiserver.Deps{Listener: listen(t)})
	if err == nil {
		err = server.Run(t.Context())
	}
	if want := "no etcd servers are configured, and this program contains no etcd"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestSharedAuthorities checks that a CA cannot be used for both users and front proxies without a
// list of allowed proxy names.
func TestSharedAuthorities(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	cfg := config.Default()
	cfg.ServiceAccountIssuers, cfg.ServiceAccountSignKey = []string{"https://a"}, filepath.Join(s.Dir, "sa.key")
	cfg.ServiceAccountKeyFiles = []string{cfg.ServiceAccountSignKey}
	cfg.ClientCAFile = filepath.Join(s.Dir, "ca.crt")
	cfg.RequestHeader.ClientCAFile = cfg.ClientCAFile
	if _, err := apiserver.New(cfg, apiserver.Deps{}); err == nil ||
		!strings.Contains(err.Error(),
			"--requestheader-client-ca-file and --client-ca-file contain overlapping certificates") {
		t.Errorf("got %v", err)
	}
	cfg.RequestHeader.AllowedNames = []string{"front-proxy"}
	if _, err := apiserver.New(cfg, apiserver.Deps{}); err != nil {
		t.Errorf("with a name: %v", err)
	}
}

// TestShutdownEndsWatches checks that a shutdown ends watches and waits for ordinary requests.
func TestShutdownEndsWatches(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	w, err := s.Client.CoreV1().ConfigMaps("default").Watch(context.WithoutCancel(t.Context()), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.Stop(t)
	for range w.ResultChan() { // runs until the server is closed
	}
	_, err = s.Client.CoreV1().ConfigMaps("default").Create(context.WithoutCancel(t.Context()),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		t.Errorf("a server that has stopped answered: %v", err)
	}
}

// TestShutdownAnswersPending checks that a request whose body is still arriving at shutdown is
// answered, and that new connections are refused in the meantime.
func TestShutdownAnswersPending(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(rest.CopyConfig(s.Config))
	if err != nil {
		t.Fatal(err)
	}
	body, send := io.Pipe()
	seen := make(chan struct{}) // closed when the server reads the body
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost,
		s.Config.Host+"/api/v1/namespaces/default/configmaps", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer := make(chan int, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		_ = resp.Body.Close()
		answer <- resp.StatusCode
	}()
	go func() {
		defer close(seen)
		if _, err := send.Write([]byte(`{"metadata":`)); err != nil {
			t.Error(err)
		}
	}()
	<-seen
	becomes := func(what string, holds func(context.Context) bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 3*time.Minute, true,
			func(ctx context.Context) (bool, error) { return holds(ctx), nil }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	becomes("the request is served", func(context.Context) bool {
		metrics, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		return err == nil &&
			strings.Contains(string(metrics), `apiserver_current_inflight_requests{request_kind="mutating"} 1`)
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(t)
	}()
	address := strings.TrimPrefix(s.Config.Host, "https://")
	becomes("nobody is let in", func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if _, err := send.Write([]byte(`{"name":"late"}}`)); err != nil {
		t.Error(err)
	}
	_ = send.Close()
	if code := <-answer; code != http.StatusCreated {
		t.Errorf("answered by %d", code)
	}
	<-stopped
}
