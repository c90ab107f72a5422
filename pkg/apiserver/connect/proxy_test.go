// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/test/unshare"
)

// backendIP is the address of the node and of the pod.
const backendIP = "10.99.0.1"

// received is a request as it reached a backend.
type received struct {
	method, uri, host, body string
	header                  http.Header
}

// backend records the requests that it receives. It answers a request for an upgrade with the
// protocol "echo".
type backend struct {
	server *httptest.Server
	got    chan received
}

func newBackend(t *testing.T, start func(*httptest.Server)) *backend {
	t.Helper()
	b := &backend{got: make(chan received, 1)}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", backendIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(b.serve))
	b.server.Listener.Close()
	b.server.Listener = listener
	start(b.server)
	t.Cleanup(b.server.Close)
	return b
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	b.got <- received{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone()}
	if r.Header.Get("Upgrade") != "" {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
		return
	}
	if to := r.Header.Get("X-Redirect"); to != "" {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		return
	}
	if r.Header.Get("X-Html") != "" {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/x">x</a><a href="y">y</a>`)
	}
}

func (b *backend) port(t *testing.T) int32 {
	t.Helper()
	return int32(b.server.Listener.Addr().(*net.TCPAddr).Port)
}

// proxied is a proxy subresource: the path of its requests, and the backend that receives them.
type proxied struct {
	base    string
	backend *backend
}

// startProxies creates a node, a pod and a service, and a backend for each. It returns their
// proxies by kind.
func startProxies(t *testing.T) (*testserver.Server, map[string]proxied) {
	t.Helper()
	unshare.Need(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(backendIP + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(lo, addr); err != nil {
		t.Fatal(err)
	}
	plain, secure := newBackend(t, (*httptest.Server).Start), newBackend(t, (*httptest.Server).StartTLS)
	s := testserver.Start(t, testserver.Options{})
	core := s.Client.CoreV1()
	node, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: backendIP}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = secure.port(t)
	if _, err := core.Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := core.ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := core.Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, backendIP
	pod.Status.PodIPs = []corev1.PodIP{{IP: backendIP}}
	if pod, err = core.Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(plain.port(t))}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	target := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p", UID: pod.UID}
	if _, err := s.Client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"192.0.2.1"}, TargetRef: target}, // not an address of the pod
			{Addresses: []string{backendIP}, TargetRef: target},
			{Addresses: []string{backendIP}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(plain.port(t))}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const namespace = "/api/v1/namespaces/default/"
	return s, map[string]proxied{
		"pod":          {namespace + "pods/p:" + strconv.Itoa(int(plain.port(t))) + "/proxy", plain},
		"pod by TLS":   {namespace + "pods/https:p:" + strconv.Itoa(int(secure.port(t))) + "/proxy", secure},
		"service":      {namespace + "services/s:80/proxy", plain},
		"kubelet":      {"/api/v1/nodes/n/proxy", secure},
		"port of node": {"/api/v1/nodes/n:" + strconv.Itoa(int(plain.port(t))) + "/proxy", plain},
	}
}

// exchange sends a request whose URI is not cleaned or encoded first, and returns the answer. It
// closes the connection of an upgraded request.
func exchange(t *testing.T, cfg *rest.Config, method, uri, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	at, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&tls.Dialer{Config: tlsConfig}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: front.example.com\r\nContent-Length: %d\r\n", method, uri, len(body))
	if err := header.Write(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, b.String()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, uri, err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, ""
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, uri, err)
	}
	return resp, string(answer)
}

// take returns the next request that the backend has received. It returns false if there is none.
func (b *backend) take() (received, bool) {
	select {
	case r := <-b.got:
		return r, true
	default:
		return received{}, false
	}
}

// paths are path and query after ".../proxy" in a request (sent), and in the request that the
// backend receives (want).
var paths = []struct{ sent, want string }{
	{sent: "/", want: "/"},
	{sent: "/file", want: "/file"},
	{sent: "/dir/", want: "/dir/"},
	{sent: "/a/b/c", want: "/a/b/c"},
	{sent: "/?x=1", want: "/?x=1"},
	{sent: "/file?x=1&y=a%2Fb&x=2&empty=&none", want: "/file?x=1&y=a%2Fb&x=2&empty=&none"},
	{sent: "/dir/?x", want: "/dir/?x"},
	// Go cannot parse this query, but it is forwarded.
	{sent: "/file?a;b&c=%zz", want: "/file?a;b&c=%zz"},
	// path is also an option of the proxy subresource, but the query is forwarded unchanged.
	{sent: "/file?path=/other", want: "/file?path=/other"},
	{sent: "/with%20space%3F", want: "/with%20space%3F"},
	{sent: "/%E2%82%AC", want: "/%E2%82%AC"},
	{sent: "/proxy/proxy", want: "/proxy/proxy"},
	// As in Kubernetes, encoded slashes are decoded, and the path is cleaned. Some clients encode a
	// whole path as one parameter.
	{sent: "/a%2Fb", want: "/a/b"},
	{sent: "/a//b", want: "/a/b"},
	{sent: "/a/%2E%2E/b", want: "/b"},
}

// TestProxiedPaths checks that backends receive the path and query that the client sent, for plain
// requests with each method and for upgrades.
func TestProxiedPaths(t *testing.T) {
	s, proxies := startProxies(t)
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions}
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			for i, tc := range paths {
				method := methods[i%len(methods)]
				resp, _ := exchange(t, s.Config, method, p.base+tc.sent, "", nil)
				if got, ok := p.backend.take(); !ok || got.method != method || got.uri != tc.want {
					t.Errorf("%s %s: status %d, received %s %s, want %s", method, tc.sent, resp.StatusCode,
						got.method, got.uri, tc.want)
				}
				want := tc.want
				if strings.Contains(p.base, "/nodes/") {
					want, _, _ = strings.Cut(want, "?") // the query is dropped, see Proxies.connector
				}
				upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
				resp, _ = exchange(t, s.Config, http.MethodGet, p.base+tc.sent, "", upgrade)
				if got, ok := p.backend.take(); !ok || resp.StatusCode != http.StatusSwitchingProtocols || got.uri != want {
					t.Errorf("upgrade of %s: status %d, received %s, want %s", tc.sent, resp.StatusCode, got.uri, want)
				}
			}
		})
	}
}

// TestProxyWithoutSlash checks that a GET or HEAD of ".../proxy" is redirected to ".../proxy/", so
// that relative links in a page of the backend work. Requests with other methods are forwarded to
// "/".
func TestProxyWithoutSlash(t *testing.T) {
	s, proxies := startProxies(t)
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			for _, query := range []string{"", "?a=b%2Fc&d"} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					resp, _ := exchange(t, s.Config, method, p.base+query, "", nil)
					if at := resp.Header.Get("Location"); resp.StatusCode != http.StatusMovedPermanently || at != p.base+"/"+query {
						t.Errorf("%s %s: status %d, Location %q", method, query, resp.StatusCode, at)
					}
					if got, ok := p.backend.take(); ok {
						t.Errorf("%s %s reached the backend at %s", method, query, got.uri)
					}
				}
				resp, _ := exchange(t, s.Config, http.MethodPost, p.base+query, "", nil)
				if got, _ := p.backend.take(); got.uri != "/"+query {
					t.Errorf("POST %s: status %d, received %q", query, resp.StatusCode, got.uri)
				}
			}
		})
	}
}

// TestProxiedHeaders checks that backends receive the client's body, headers and host, and headers
// with the client's address. They must not receive the client's credentials.
func TestProxiedHeaders(t *testing.T) {
	s, proxies := startProxies(t)
	for name, p := range proxies {
		for _, upgrade := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, upgrade %t", name, upgrade), func(t *testing.T) {
				sent := http.Header{
					"X-Mine": {"one", "two"}, "Cookie": {"a=b"}, "User-Agent": {"test"},
					"Content-Type": {"application/x-www-form-urlencoded"},
					// The client is authenticated by its certificate. The header may contain credentials of
					// another user, so it must not be forwarded either.
					"Authorization": {"Basic YTpi"},
				}
				body := "a=b&c=%2F"
				if upgrade {
					sent["Connection"], sent["Upgrade"], body = []string{"Upgrade"}, []string{"echo"}, ""
				}
				resp, _ := exchange(t, s.Config, http.MethodPost, p.base+"/dir/?q=1", body, sent)
				got, ok := p.backend.take()
				if !ok || got.body != body || got.host != "front.example.com" {
					t.Fatalf("status %d, received body %q, host %q", resp.StatusCode, got.body, got.host)
				}
				for _, key := range []string{"X-Mine", "Cookie", "User-Agent", "Content-Type"} {
					if !slices.Equal(got.header[key], sent[key]) {
						t.Errorf("header %s: %q, want %q", key, got.header[key], sent[key])
					}
				}
				if v := got.header["Authorization"]; v != nil {
					t.Errorf("received Authorization %q", v)
				}
				if v := got.header.Get("X-Forwarded-For"); v != "127.0.0.1" {
					t.Errorf("X-Forwarded-For %q", v)
				}
				want := p.base + "/dir/"
				if upgrade {
					want = ""
				}
				if v := got.header.Get("X-Forwarded-Uri"); v != want {
					t.Errorf("X-Forwarded-Uri %q, want %q", v, want)
				}
			})
		}
	}
}

// TestProxiedAnswers checks that redirects and links in HTML pages to paths of the backend are
// changed to paths of the proxy, and that other links stay as they are.
func TestProxiedAnswers(t *testing.T) {
	s, proxies := startProxies(t)
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			for to, want := range map[string]string{
				"/login?next=%2F":            p.base + "/login?next=%2F",
				"login":                      "login",
				"https://other.example/x":    "https://other.example/x",
				p.base + "/already":          p.base + "/already",
				p.backend.server.URL + "/d/": p.base + "/d/",
			} {
				resp, _ := exchange(t, s.Config, http.MethodGet, p.base+"/page", "", http.Header{"X-Redirect": {to}})
				p.backend.take()
				if at := resp.Header.Get("Location"); resp.StatusCode != http.StatusFound || at != want {
					t.Errorf("redirect to %s: status %d, Location %q, want %q", to, resp.StatusCode, at, want)
				}
			}
			_, page := exchange(t, s.Config, http.MethodGet, p.base+"/dir/page", "", http.Header{"X-Html": {"1"}})
			p.backend.take()
			if want := `<a href="` + p.base + `/x">x</a><a href="y">y</a>`; page != want {
				t.Errorf("page %q, want %q", page, want)
			}
		})
	}
}
