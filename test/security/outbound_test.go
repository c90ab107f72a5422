// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/outbound"
)

// fakeKubelet starts a kubelet that the attacker controls, and returns its address.
func fakeKubelet(t *testing.T, h http.Handler) string {
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// reaching lets the API server connect to test servers on loopback. An attack begins with such a
// connection.
func reaching(c *config.Config) { c.Transport.Allow = []string{"127.0.0.0/8"} }

// TestCVE_2018_1002105 sends another request after the kubelet has rejected an upgrade request.
// Older API servers kept the connection to the kubelet open, with the API server's rights.
func TestCVE_2018_1002105(t *testing.T) {
	var requests atomic.Int32
	leaked := make(chan string, 8)
	// This kubelet rejects the upgrade request and continues to read.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			leaked <- err.Error()
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		_ = rw.Flush()
		rest, _ := io.ReadAll(rw) // returns when the API server closes the connection
		leaked <- string(rest)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)

	lab := newLab(t, reaching)
	lab.namespace(t, "a")
	lab.node(t, "n1", l.Addr().String())
	lab.pod(t, "a", "p", "n1", "192.0.2.10")
	eve := lab.user(t, "eve", "a",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/exec"},
			Verbs: []string{"get", "create"}})
	allowed(t, func(ctx context.Context) error {
		_, err := eve.CoreV1().Pods("a").Get(ctx, "p", metav1.GetOptions{})
		return err
	})

	conn, resp := raw(t, lab.UserConfig(t, "eve"),
		"POST /api/v1/namespaces/a/pods/p/exec?command=id&stdout=1 HTTP/1.1\r\nHost: x\r\n"+
			"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
	if resp.StatusCode == http.StatusSwitchingProtocols || requests.Load() != 1 {
		t.Fatalf("the attack does not begin: %s, %d requests", resp.Status, requests.Load())
	}
	// The write fails if the server has already closed the connection.
	_, _ = io.WriteString(conn, "GET /runningpods/ HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = conn.CloseWrite()
	_, _ = io.Copy(io.Discard, conn)
	if got := <-leaked; got != "" {
		t.Errorf("the kubelet was sent %q", got)
	}
}

// TestCVE_2020_8559 uses a kubelet that responds to exec or log requests (CVE-2018-1002102) with a
// redirect. Older API servers followed the redirect and sent their credentials to another server.
func TestCVE_2020_8559(t *testing.T) {
	elsewhere := newVictim(t)
	kubelet := fakeKubelet(t, http.RedirectHandler(elsewhere.URL+"/exec", http.StatusFound))
	lab := newLab(t, reaching)
	lab.namespace(t, "a")
	lab.node(t, "n1", kubelet)
	lab.pod(t, "a", "p", "n1", "192.0.2.10")
	for _, upgrade := range []string{
		"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io",
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io",
	} {
		_, resp := raw(t, lab.Config,
			"GET /api/v1/namespaces/a/pods/p/exec?command=id&stdout=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"+
				upgrade+"\r\n\r\n")
		if resp.StatusCode >= 300 && resp.StatusCode < 400 {
			t.Errorf("the redirect is passed on: %s %s", resp.Status, resp.Header.Get("Location"))
		}
	}
	for _, path := range []string{"/api/v1/namespaces/a/pods/p/log",
		"/api/v1/namespaces/a/pods/p/log?insecureSkipTLSVerifyBackend=true"} {
		if code, header, _ := get(t, lab.Config, path); code < 400 || header.Get("Location") != "" {
			t.Errorf("%s is answered with %d", path, code)
		}
	}
	elsewhere.unharmed(t)
}

// TestCVE_2022_3294 creates a Node with an address of the control plane. Older API servers' proxies
// connected to that address. The test also tries such addresses for a pod and an endpoint
// (CVE-2020-8562 without its race).
func TestCVE_2022_3294(t *testing.T) {
	own := newVictim(t)
	_, port, err := net.SplitHostPort(own.Listener.Addr().String())
	check(t, err)
	// The lab's other rules allow the address, so that only the proxy's own rule can reject it.
	lab := newLab(t, reaching)
	lab.namespace(t, "a")
	for name, host := range map[string]string{"ip": "127.0.0.1", "name": "localhost",
		"mapped": "::ffff:127.0.0.1", "metadata": "169.254.169.254", "unspecified": "0.0.0.0"} {
		lab.node(t, name, net.JoinHostPort(host, port))
		for _, path := range []string{"/proxy/", ":" + port + "/proxy/"} {
			path = "/api/v1/nodes/" + name + path
			if strings.Contains(path, ":") {
				path = strings.Replace(path, "nodes/", "nodes/https:", 1)
			}
			if code, _, body := get(t, lab.Config, path); code < 400 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		if net.ParseIP(host) != nil && !strings.Contains(host, ":") {
			lab.pod(t, "a", "pod-"+name, "n", host)
			if code, _, body := get(t, lab.Config, "/api/v1/namespaces/a/pods/https:pod-"+name+":"+port+"/proxy/"); code < 400 {
				t.Errorf("pod at %s: %d %s", host, code, body)
			}
		}
	}
	own.unharmed(t)
}

// TestCVE_2020_8562 uses a name server whose second response differs from the first. Older API
// servers resolved a node's name twice: once to check the address, and once to connect.
func TestCVE_2020_8562(t *testing.T) {
	own := newVictim(t)
	_, port, err := net.SplitHostPort(own.Listener.Addr().String())
	check(t, err)
	asked := changingNames(t)

	lab := newLab(t, reaching)
	lab.node(t, "n1", net.JoinHostPort("rebind.example.", port))
	for range 4 {
		for _, path := range []string{"/api/v1/nodes/n1/proxy/", "/api/v1/nodes/https:n1:" + port + "/proxy/"} {
			if code, _, body := get(t, lab.Config, path); code < 400 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	}
	if asked.Load() < 2 {
		t.Errorf("the name was looked up %d times: the attack did not take place", asked.Load())
	}
	own.unharmed(t)

	// The dialer for all other connections of the API server must reject the address, too.
	conn, err := outbound.NewDialer(outbound.Policy{Deny: outbound.SpecialRanges()}).DialContext(t.Context(),
		"tcp", net.JoinHostPort("rebind.example.", port))
	if err == nil {
		_ = conn.Close()
	}
	own.unharmed(t)
}

// changingNames installs a name server for this process. Its first response is a public address,
// and later responses are an address of this machine. It returns the number of requests.
func changingNames(t *testing.T) *atomic.Int32 {
	t.Helper()
	var asked atomic.Int32
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				a := [4]byte{127, 0, 0, 1}
				if asked.Add(1)%2 == 1 {
					a = [4]byte{203, 0, 113, 7}
				}
				m.Answers = []dnsmessage.Resource{
					{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: a}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(out, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = server.Close()
		<-done
	})
	return &asked
}

// TestCVE_2020_8561 uses webhooks that redirect to a server in the API server's network. In older
// API servers, users could read that server's responses in a log. The test also uses webhooks at
// addresses of the control plane.
func TestCVE_2020_8561(t *testing.T) {
	inside := newVictim(t)
	hook := httptest.NewTLSServer(http.RedirectHandler(inside.URL+"/admin", http.StatusTemporaryRedirect))
	t.Cleanup(hook.Close)
	configure := func(lab *lab, server *httptest.Server) {
		t.Helper()
		_, err := lab.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "evil"},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "evil.example.com", AdmissionReviewVersions: []string{"v1"},
					SideEffects:   ptr.To(admissionregistrationv1.SideEffectClassNone),
					FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: ptr.To(int32(30)),
					ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL + "/"),
						CABundle: encodeCertificate(server)},
					Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
						Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"configmaps"}}}},
				}},
			}, metav1.CreateOptions{})
		check(t, err)
	}
	refusal := func(lab *lab) string {
		t.Helper()
		var said string
		eventually(t, "the webhook counts", func(ctx context.Context) bool {
			_, err := lab.Client.CoreV1().ConfigMaps("default").Create(ctx,
				&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
			if err != nil {
				said = err.Error()
			}
			return err != nil
		})
		return said
	}
	redirected := newLab(t, reaching)
	configure(redirected, hook)
	if said := refusal(redirected); !strings.Contains(said, outbound.ErrRedirect.Error()) {
		t.Errorf("the webhook's redirect is answered with %q", said)
	}
	inside.unharmed(t)

	direct := newLab(t, nil) // with the default settings of clusters
	configure(direct, inside.Server)
	if said := refusal(direct); !strings.Contains(said, outbound.ErrDenied.Error()) {
		t.Errorf("the webhook on the server's own machine is answered with %q", said)
	}
	inside.unharmed(t)
}

// TestCVE_2022_3172 uses an aggregated API server that redirects clients, with their credentials,
// to another server. It also creates an APIService that refers to the control plane itself, which
// is like CVE-2020-8555 for storage.
func TestCVE_2022_3172(t *testing.T) {
	elsewhere := newVictim(t)
	const group = "/apis/evil.example.com/v1"
	extension := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == group { // makes the aggregated server appear healthy
			_, _ = io.WriteString(w,
				`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"evil.example.com/v1","resources":[]}`)
			return
		}
		http.Redirect(w, r, elsewhere.URL+"/", http.StatusFound)
	}))
	t.Cleanup(extension.Close)
	for name, tc := range map[string]struct {
		change func(*config.Config)
		target *httptest.Server
		want   int
	}{
		"redirect":       {reaching, extension, http.StatusBadGateway},
		"its own server": {nil, elsewhere.Server, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lab := newLab(t, func(c *config.Config) {
				if tc.change != nil {
					tc.change(c)
				}
				cert, key := testserver.ClientCertificate(t, filepath.Dir(c.ClientCAFile), "front-proxy")
				c.ProxyClientCert, c.ProxyClientKey = filepath.Join(dir, "p.crt"), filepath.Join(dir, "p.key")
				check(t, os.WriteFile(c.ProxyClientCert, cert, 0o600))
				check(t, os.WriteFile(c.ProxyClientKey, key, 0o600))
			})
			aggregate(t, lab, tc.target.Listener.Addr().String())
			eventually(t, "the server answers for the extension", func(context.Context) bool {
				code, header, _ := get(t, lab.Config, group+"/things")
				if header.Get("Location") != "" {
					t.Fatalf("the redirect is passed on to the client: %s", header.Get("Location"))
				}
				return code == tc.want
			})
			elsewhere.unharmed(t)
		})
	}
}

// aggregate registers the server at an address as the aggregated API server of an API group.
func aggregate(t *testing.T, lab *lab, address string) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	number, err := net.LookupPort("tcp", port)
	check(t, err)
	_, err = lab.Client.CoreV1().Services("default").Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "evil"},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []v1.ServicePort{{Port: int32(number)}}},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = aggregatorclient.NewForConfigOrDie(lab.Config).ApiregistrationV1().APIServices().Create(
		t.Context(), &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1.evil.example.com"},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: "evil.example.com", Version: "v1", GroupPriorityMinimum: 2000, VersionPriority: 10,
				InsecureSkipTLSVerify: true,
				Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "evil",
					Port: ptr.To(int32(number))},
			},
		}, metav1.CreateOptions{})
	check(t, err)
}

func encodeCertificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
