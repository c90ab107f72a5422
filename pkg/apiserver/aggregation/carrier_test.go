// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// fixed resolves every service to one address.
type fixed struct{ at *url.URL }

func (f fixed) ResolveEndpoint(string, string, int32) (*url.URL, error) { return f.at, nil }

// TestRedirects checks that a client gets an error instead of a redirect, unless redirects are
// passed on.
func TestRedirects(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.RedirectHandler("https://192.0.2.9/", http.StatusFound))
	defer elsewhere.Close()
	at, err := url.Parse(elsewhere.URL)
	if err != nil {
		t.Fatal(err)
	}
	for passed, want := range map[bool]int{false: http.StatusBadGateway, true: http.StatusFound} {
		c := &carrier{available: true, resolver: fixed{at}, transport: elsewhere.Client().Transport, redirects: passed}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(request.WithUser(t.Context(), &user.DefaultInfo{Name: "bob"}),
			http.MethodGet, "/apis/things.example.com/v1/things", nil)
		c.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("passed on %t: %d, want %d", passed, w.Code, want)
		}
	}
}

// TestDiscoveryOfUnavailable checks that discovery lists the resources of an extension server whose
// APIService is not available, and that requests for the resources are rejected.
func TestDiscoveryOfUnavailable(t *testing.T) {
	e := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kind":"APIGroupDiscoveryList",` +
			`"items":[{"metadata":{"name":"things.example.com"},"versions":[{"version":"v1","resources":[{"resource":"things"}]}]}]}`))
	}))
	defer e.Close()
	at, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &carrier{gv: schema.GroupVersion{Group: "things.example.com", Version: "v1"}, resolver: fixed{at},
		transport: e.Client().Transport}
	a := &Aggregator{}
	if err := a.discover(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if v := a.found.versions[c.gv]; v.Freshness != apidiscovery.DiscoveryFreshnessCurrent || len(v.Resources) != 1 {
		t.Errorf("found %+v", v)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/things.example.com/v1/things", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("a request for things: %d", w.Code)
	}
}

// TestForwardedPaths checks that an extension server receives the path and query of plain requests
// and of upgrades. As in Kubernetes, the proxy sorts the query and drops malformed parts.
func TestForwardedPaths(t *testing.T) {
	got := make(chan string, 1)
	e := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.RequestURI
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}))
	defer e.Close()
	at, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &carrier{available: true, resolver: fixed{at}, transport: e.Client().Transport}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "bob"})))
	}))
	defer front.Close()
	const base = "/apis/things.example.com/v1/things"
	for sent, want := range map[string]string{
		"":                       "",
		"/":                      "/",
		"/x":                     "/x",
		"?watch=true":            "?watch=true",
		"/x/log?b=2&a=%2F&b=1":   "/x/log?a=%2F&b=2&b=1",
		"/x/?flag":               "/x/?flag=",
		"/x?a=1&broken=%zz&c;d=": "/x?a=1",
		"/a%20b":                 "/a%20b",
		"/a%2Fb":                 "/a/b",
	} {
		for _, upgrade := range []bool{false, true} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+base+sent, nil)
			if err != nil {
				t.Fatal(err)
			}
			if upgrade {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "echo")
			}
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			select {
			case uri := <-got:
				if uri != "POST "+base+want {
					t.Errorf("%q, upgrade %t: received %s, want %s", sent, upgrade, uri, want)
				}
			default:
				t.Errorf("%q, upgrade %t: status %d, nothing received", sent, upgrade, resp.StatusCode)
			}
		}
	}
}
