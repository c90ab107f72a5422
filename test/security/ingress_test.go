// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	networkingv1 "k8s.io/api/networking/v1"

	"keelson.dev/keelson/pkg/ingress"
)

func defaults() ingress.Limits { return ingress.DefaultLimits(1 << 30) }

// TestIngressHostOfAnother checks that a tenant cannot take over a path of another tenant's host,
// replace that host's certificate, or get its requests with an Ingress without a host.
func TestIngressHostOfAnother(t *testing.T) {
	d := newTestIngress(t, defaults(), map[string]http.Handler{"shop/web": named("shop"), "evil/web": named("evil")})
	shop := rules("shop", "shop", 9, "shop.example.org", "/ web")
	wild := rules("shop", "wild", 9, "*.shop.example.org", "/any web")
	anyHost := rules("evil", "any", 1, "", "/ web", "/login web")
	anyHost.Spec.DefaultBackend = toService("web")
	certificate := d.secured(t, rules("evil", "certificate", 1, "shop.example.org", "/x web"), "shop.example.org")
	allCertificate := rules("evil", "all", 1, "", "/x web")
	allCertificate.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "certificate"}}
	d.use(shop, wild, anyHost, certificate, allCertificate,
		rules("evil", "login", 1, "shop.example.org", "/login web", "/.well-known/acme-challenge/x web"),
		rules("evil", "below", 1, "pay.shop.example.org", "/ web"))
	for _, host := range []string{"shop.example.org", "SHOP.example.org", "shop.example.org.",
		"shop.example.org:80", "shop.example.org.:80", "a.shop.example.org", "pay.shop.example.org"} {
		for _, path := range []string{"/", "/login", "/login/x", "/.well-known/acme-challenge/x", "/any", "/x"} {
			if code, body := say(t, dial(t, d.http), "GET "+path+" HTTP/1.1\r\nHost: "+host+
				"\r\n\r\n"); strings.HasPrefix(body, "evil") || code == http.StatusPermanentRedirect {
				t.Errorf("%s%s is answered by another namespace: %d %s", host, path, code, body)
			}
		}
	}
	for _, host := range []string{"shop.example.org", "Shop.Example.org", "pay.shop.example.org"} {
		conn, err := tls.Dial("tcp", d.https,
			&tls.Config{ServerName: host, InsecureSkipVerify: true}) //nolint:gosec // the certificate is only inspected
		if err == nil {
			t.Errorf("%s has the certificate of another namespace", host)
			_ = conn.Close()
		}
	}
	// Rules without a host apply only to hosts that no Ingress has.
	if b := d.proxy.Table().Route("other.example.org", "/"); b == nil || b.Namespace != "evil" {
		t.Errorf("a host that no Ingress names: %v", b)
	}
}

// TestIngressH2CSmuggling checks that a client cannot upgrade a connection through the proxy to
// HTTP/2. The proxy would not check the requests that the client sends on such a connection.
func TestIngressH2CSmuggling(t *testing.T) {
	var d *testIngress
	// This endpoint, like many servers, uses HTTP/2 with any client that requests an upgrade.
	lenient := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(strings.ToLower(r.Header.Get("Upgrade")), "h2c") {
			fmt.Fprintf(w, "upgrade=%q settings=%q", r.Header.Get("Upgrade"), r.Header.Get("HTTP2-Settings"))
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		(&http2.Server{}).ServeConn(readFrom{conn, buffered}, &http2.ServeConnOpts{Handler: named("smuggled")})
	})
	d = newTestIngress(t, defaults(), map[string]http.Handler{"shop/web": lenient})
	d.use(rules("shop", "shop", 1, "shop.example.org", "/public web"))
	for _, upgrade := range []string{"h2c", "H2C", "h2c, websocket", "websocket, h2c",
		"websocket\r\nUpgrade: h2c", "h2c\r\nUpgrade: websocket"} {
		conn := dial(t, d.http)
		_, err := io.WriteString(conn, "GET /public HTTP/1.1\r\nHost: shop.example.org\r\nConnection: "+
			"Upgrade\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nUpgrade: "+upgrade+"\r\n\r\n")
		check(t, err)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		check(t, err)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			body, _ := io.ReadAll(resp.Body)
			if !strings.Contains(string(body), `upgrade="" settings=""`) {
				t.Errorf("Upgrade: %q: %d %s", upgrade, resp.StatusCode, body)
			}
			continue
		}
		c, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(conn)
		check(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example.org/admin", nil)
		check(t, err)
		if resp, err = c.RoundTrip(r); err == nil {
			body, _ := io.ReadAll(resp.Body)
			t.Errorf("Upgrade: %q: a path without a rule answers %s", upgrade, body)
		}
	}
	// Try HTTP/2 without an upgrade (prior knowledge): with the proxy itself, and through the proxy
	// with the endpoint.
	if code, body := say(t, dial(t, d.http), http2.ClientPreface+
		"\x00\x00\x00\x04\x00\x00\x00\x00\x00"); code == http.StatusOK {
		t.Errorf("HTTP/2 without TLS: %d %s", code, body)
	}
}

// TestIngressPathPastRules checks that the proxy and the endpoint interpret each path in the same
// way, so that a path which one rule matches does not reach another path at the endpoint.
func TestIngressPathPastRules(t *testing.T) {
	d := newTestIngress(t, defaults(),
		map[string]http.Handler{"shop/open": named("open"), "shop/guarded": named("guarded")})
	d.use(rules("shop", "shop", 1, "shop.example.org", "/ open", "/admin guarded", "/api/internal guarded"))
	for _, path := range []string{
		"//admin", "///admin/x", "/%2fadmin", "/.//admin", "/x/../admin", "/x/%2e%2e/admin", "/x/%2e./admin",
		"/x/..;/admin", "/x/..;a=b/admin", "/x/%2e%2e;/admin", "/.;/admin",
		"/admin;x=y", "/admin;/x", "/;/admin", "/x/..%5cadmin", "/x\\..\\admin", "/\\admin", "/%5cadmin",
		"/admin%00", "/api//internal", "/api/;x/internal", "/api\\internal", "/api;v=1/internal",
		"/x/..%2fadmin", "/x%2f..%2fadmin", "http:/admin",
	} {
		if code, body := say(t, dial(t, d.http),
			"GET "+path+" HTTP/1.1\r\nHost: shop.example.org\r\nConnection: close\r\n\r\n"); strings.HasPrefix(body, "open") {
			t.Errorf("%s bypasses the rule of another path: %d %s", path, code, body)
		}
	}
	for path, want := range map[string]string{
		"/x//y": "open /x//y", "/fetch/https://a/b": "open /fetch/https://a/b", "/x;v=1/y": "open /x;v=1/y",
		"/%61dmin": "guarded /%61dmin", "/admin/;x": "guarded /admin/;x", "/admin//x": "guarded /admin//x",
		"/...": "open /...",
	} {
		if _, body := say(t, dial(t, d.http),
			"GET "+path+" HTTP/1.1\r\nHost: shop.example.org\r\nConnection: close\r\n\r\n"); body != want {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
}

// TestIngressHeaders checks that a client's headers cannot forge the information about the client,
// the host or the body that the endpoint gets.
func TestIngressHeaders(t *testing.T) {
	tell := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "host=%s body=%q\n", r.Host, body)
		check(t, r.Header.Write(w))
	})
	d := newTestIngress(t, defaults(), map[string]http.Handler{"shop/web": tell})
	d.use(rules("shop", "shop", 1, "shop.example.org", "/ web"))
	for _, header := range []string{
		"X-Forwarded-For: evil", "X-Forwarded-Proto: evil", "X-Forwarded-Host: evil", "X-Forwarded-Port: evil",
		"X-Forwarded-Prefix: evil", "X-Forwarded-Client-Cert: evil", "Forwarded: for=evil",
		"X_Forwarded_For: evil", "X-Forwarded_Proto: evil", "X-Real-IP: evil", "X_Real_IP: evil",
		"X-Original-URL: /evil", "X-Rewrite-URL: /evil", "X-Original-Forwarded-For: evil",
		"True-Client-IP: evil", "X-Client-IP: evil",
		"Proxy-Authorization: evil", "Proxy: evil", "Keep-Alive: evil",
		"X-Forwarded-For: evil\r\nConnection: X-Forwarded-For, X-Forwarded-Proto, Host, close",
	} {
		code, body := say(t, dial(t, d.http), "GET / HTTP/1.1\r\nHost: shop.example.org\r\n"+header+"\r\n\r\n")
		if code != http.StatusOK || strings.Contains(body, "evil") ||
			!strings.Contains(body, "X-Forwarded-For: 127.0.0.1\r\n") || !strings.Contains(body, "X-Forwarded-Proto: http\r\n") {
			t.Errorf("%s: %d %s", header, code, body)
		}
	}
	for _, host := range []string{"shop.example.org:80@evil", "evil@shop.example.org", "shop.example.org:x",
		"shop.example.org..", ".shop.example.org", "shop.example.org:80:80", "shop.example.org/x",
		"shop.example.org,evil", "shop.example.org%2f", "[shop.example.org]", "shop.example.org\r\nHost: evil"} {
		if code, body := say(t, dial(t, d.http), "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); code != http.StatusBadRequest {
			t.Errorf("Host: %q: %d %s", host, code, body)
		}
	}
	for _, framing := range []string{
		"Content-Length: 4\r\nContent-Length: 5", "Content-Length: 4, 5", "Content-Length: +4",
		"Transfer-Encoding: chunked, identity", "Transfer-Encoding: xchunked", "Transfer-Encoding : chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding:\x0bchunked",
		"Content-Length: 4\r\n Transfer-Encoding: chunked",
	} {
		if code, body := say(t, dial(t, d.http), "POST / HTTP/1.1\r\nHost: shop.example.org\r\n"+framing+
			"\r\n\r\n0\r\n\r\n"); code == http.StatusOK {
			t.Errorf("%q: %d %s", framing, code, body)
		}
	}
	// If a request has both Content-Length and chunked encoding, the proxy must use the chunks and
	// must not forward the length.
	code, body := say(t, dial(t, d.http), "POST / HTTP/1.1\r\nHost: shop.example.org\r\nContent-Length: "+
		"3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
	if code == http.StatusOK && (!strings.Contains(body, `body="a"`) || strings.Contains(body, "Content-Length")) {
		t.Errorf("both framings: %d %s", code, body)
	}
}

// TestIngressMisdirected checks that a TLS connection for one host does not serve requests for a
// host of another namespace with another certificate.
func TestIngressMisdirected(t *testing.T) {
	d := newTestIngress(t, defaults(), map[string]http.Handler{"shop/web": named("shop"), "bank/web": named("bank")})
	shop := d.secured(t, rules("shop", "shop", 1, "shop.example.org", "/ web"), "shop.example.org")
	bank := d.secured(t, rules("bank", "bank", 1, "bank.example.org", "/ web"), "bank.example.org")
	plain := rules("bank", "plain", 1, "plain.example.org", "/ web")
	d.use(shop, bank, plain)
	for _, protocol := range []string{"http/1.1", "h2"} {
		for host, want := range map[string]int{"shop.example.org": 200,
			"bank.example.org": http.StatusMisdirectedRequest, "plain.example.org": http.StatusMisdirectedRequest} {
			transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "shop.example.org",
				InsecureSkipVerify: true, NextProtos: []string{protocol}},
				ForceAttemptHTTP2: protocol == "h2"} //nolint:gosec // the test's own certificate
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+d.https+"/", nil)
			check(t, err)
			r.Host = host
			resp, err := transport.RoundTrip(r)
			check(t, err)
			body, err := io.ReadAll(resp.Body)
			check(t, err)
			if resp.StatusCode != want {
				t.Errorf("%s: %s over a connection for another host: %d %s", resp.Proto, host, resp.StatusCode, body)
			}
			transport.CloseIdleConnections()
		}
	}
}

// readFrom is a connection whose first bytes have already been read into a buffer.
type readFrom struct {
	net.Conn
	in io.Reader
}

func (c readFrom) Read(b []byte) (int, error) { return c.in.Read(b) }
