// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/api/networking/hosts"
)

// of sets the namespace of an Ingress.
func of(namespace string, i *networkingv1.Ingress) *networkingv1.Ingress {
	i.Namespace = namespace
	return i
}

func shared(with string, i *networkingv1.Ingress) *networkingv1.Ingress {
	i.Annotations = map[string]string{service.ShareHosts: with}
	return i
}

// later sets the annotation that says since which second the Ingress has named its first host.
func later(second int64, i *networkingv1.Ingress) *networkingv1.Ingress {
	i.Annotations = map[string]string{hosts.Since: fmt.Sprintf("{%q: %q}", i.Spec.Rules[0].Host,
		time.Unix(second, 0).UTC().Format(time.RFC3339))}
	return i
}

func withTLS(i *networkingv1.Ingress, hosts ...string) *networkingv1.Ingress {
	i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{Hosts: hosts, SecretName: "tls"})
	return i
}

func withDefault(i *networkingv1.Ingress, name string) *networkingv1.Ingress {
	i.Spec.DefaultBackend = ptr.To(backend(name))
	return i
}

func TestOwners(t *testing.T) {
	const host = "x.example.org"
	for name, tc := range map[string]struct {
		ingresses  []*networkingv1.Ingress
		host, path string
		want       string // namespace/name of the Service that gets the request
		refused    int    // number of refused hosts of all Ingresses
	}{
		"OldestOwns": {[]*networkingv1.Ingress{of("a", ing(t, 2, host, "Prefix / to s")),
			of("b", ing(t, 1, host, "Prefix / to s", "Prefix /login to s"))}, host, "/login", "a/s", 1},
		"NextOldestAfterIt": {[]*networkingv1.Ingress{of("b", ing(t, 1, host, "Prefix / to s")),
			of("c", ing(t, 0, host, "Prefix /login to s"))}, host, "/login", "b/s", 1},
		"OwnNamespaceAdds": {[]*networkingv1.Ingress{of("a", ing(t, 2, host, "Prefix / to s")),
			of("a", ing(t, 1, host, "Exact /.well-known/acme-challenge/t to solver"))}, host,
			"/.well-known/acme-challenge/t", "a/solver", 0},
		"NoHostIsForOthers": {[]*networkingv1.Ingress{of("a", ing(t, 1, host, "Prefix /a to s")),
			of("b", ing(t, 2, "", "Prefix / to s"))}, host, "/b", "", 0},
		"NoHostOfTheOwner": {[]*networkingv1.Ingress{of("a", ing(t, 1, host, "Prefix /a to s")),
			of("b", ing(t, 2, "", "Prefix / to s")), of("a", ing(t, 0, "", "Prefix /b to own"))}, host, "/b", "a/own", 1},
		"NoHostOldest": {[]*networkingv1.Ingress{of("a", ing(t, 2, "", "Prefix /a to s")),
			of("b", ing(t, 1, "", "Prefix / to s"))}, host, "/b", "", 1},
		"DefaultOldest": {
			[]*networkingv1.Ingress{of("a", withDefault(ing(t, 2, "other", "Prefix /a to s"), "d")),
				of("b", ing(t, 1, "", "Prefix / to s"))}, host, "/b", "a/d", 1},
		"DefaultOfAnother": {[]*networkingv1.Ingress{of("a", ing(t, 1, host, "Prefix /a to s")),
			of("b", withDefault(ing(t, 2, "other", "Prefix / to s"), "d"))}, host, "/b", "", 0},
		"OlderWildcardCovers": {
			[]*networkingv1.Ingress{of("a", ing(t, 2, "*.example.org", "Prefix /a to s")),
				of("b", ing(t, 1, host, "Prefix / to s"))}, host, "/b", "", 1},
		"OlderHostStays": {
			[]*networkingv1.Ingress{of("a", ing(t, 1, "*.example.org", "Prefix / to s")),
				of("b", ing(t, 2, host, "Prefix /b to s"))}, host, "/b", "b/s", 0},
		"OlderHostIsAllItsOwn": {
			[]*networkingv1.Ingress{of("a", ing(t, 1, "*.example.org", "Prefix / to s")),
				of("b", ing(t, 2, host, "Prefix /b to s"))}, host, "/a", "", 0},
		"WildcardIsOneLabel": {
			[]*networkingv1.Ingress{of("a", ing(t, 2, "*.example.org", "Prefix / to s")),
				of("b", ing(t, 1, "y."+host, "Prefix / to s"))}, "y." + host, "/", "b/s", 0},
		"SharedWildcard": {
			[]*networkingv1.Ingress{of("a", shared("c, b", ing(t, 2, "*.example.org", "Prefix / to s"))),
				of("b", ing(t, 1, host, "Prefix /b to s"))}, host, "/b", "b/s", 0},
		"SharedWildcardIsItsOwn": {
			[]*networkingv1.Ingress{of("a", shared("*", ing(t, 2, "*.example.org", "Prefix / to s"))),
				of("b", ing(t, 1, host, "Prefix /b to s")), of("c", ing(t, 0, host, "Prefix /c to s"))}, host, "/c", "", 1},
		"Shared": {
			[]*networkingv1.Ingress{of("a", shared("b", ing(t, 2, host, "Prefix / to s"))),
				of("b", ing(t, 1, host, "Prefix /b to s"))}, host, "/b", "b/s", 0},
		"SharedWithAnother": {
			[]*networkingv1.Ingress{of("a", shared("c", ing(t, 2, host, "Prefix / to s"))),
				of("b", ing(t, 1, host, "Prefix /b to s"))}, host, "/b", "a/s", 1},
		"SharedKeepsTheOwners": {
			[]*networkingv1.Ingress{of("a", shared("b", ing(t, 2, host, "Prefix / to s"))),
				of("b", ing(t, 1, host, "Prefix /a to s")), of("a", ing(t, 0, host, "Prefix /a to s"))}, host, "/a", "a/s", 0},
		"SharedByWhoDoesNotOwn": {[]*networkingv1.Ingress{of("a", ing(t, 2, host, "Prefix / to s")),
			of("b", shared("*", ing(t, 1, host, "Prefix /b to s"))),
			of("c", ing(t, 0, host, "Prefix /b to s"))}, host, "/b", "a/s", 2},
		"CertificateClaims": {
			[]*networkingv1.Ingress{of("a", withTLS(ing(t, 2, "", "Prefix / to s"), host)),
				of("b", ing(t, 1, host, "Prefix / to s"))}, host, "/", "a/s", 1},
		"WildcardCertificateNot": {
			[]*networkingv1.Ingress{
				of("a", withTLS(ing(t, 2, "y.example.org", "Prefix / to s"), "*.example.org")),
				of("b", ing(t, 1, host, "Prefix / to s"))}, host, "/", "b/s", 0},
		"DottedNameIsTheSameHost": {[]*networkingv1.Ingress{of("a", ing(t, 2, host, "Prefix / to s")),
			of("b", ing(t, 1, host+".", "Prefix / to s"))}, host + ".", "/", "a/s", 1},
		"TakenOnLater": {
			[]*networkingv1.Ingress{of("b", later(90, ing(t, 20, host, "Prefix / to s"))),
				of("a", ing(t, 15, host, "Prefix /a to s"))}, host, "/", "", 1},
		"TakenOnNeverEarlier": {
			[]*networkingv1.Ingress{of("b", later(1, ing(t, 10, host, "Prefix / to s"))),
				of("a", ing(t, 15, host, "Prefix /a to s"))}, host, "/", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // once for each order of the Ingresses
				table, refused := Build(tc.ingresses, noBackends(), noCertificates), 0
				for _, i := range tc.ingresses {
					refused += len(table.Refused(i))
				}
				got := ""
				if b := table.Route(tc.host, tc.path); b != nil {
					got = strings.TrimSuffix(b.Name, ":80")
				}
				if got != tc.want || refused != tc.refused {
					t.Errorf("goes to %q with %d names refused, want %q and %d", got, refused, tc.want, tc.refused)
				}
				slices.Reverse(tc.ingresses)
			}
		})
	}
}

// TestCertificatesOfOwners checks that a certificate is used only for hosts that the namespace of
// its Secret owns.
func TestCertificatesOfOwners(t *testing.T) {
	all := []*networkingv1.Ingress{
		of("a", ing(t, 3, "x.example.org", "Prefix / to s")),
		of("b", withTLS(ing(t, 2, "x.example.org", "Prefix / to s"), "x.example.org")),
		of("b", withTLS(ing(t, 1, "", "Prefix / to s"))),
		of("b", withTLS(ing(t, 0, "y.example.org", "Prefix / to s"), "*.example.org")),
	}
	table := Build(all, noBackends(), func(string, string) *tls.Certificate { return &tls.Certificate{} })
	for host, want := range map[string]bool{"x.example.org": false, "y.example.org": true, "other": true, "": true} {
		if got := table.Certificate(host) != nil; got != want {
			t.Errorf("%q has a certificate: %t", host, got)
		}
	}
}

// naiveOwner returns the owner of a host according to a simple model, which follows the text of the
// documentation.
func naiveOwner(all []*networkingv1.Ingress, host string) string {
	claims := func(i *networkingv1.Ingress, name string) bool {
		if name == "" && i.Spec.DefaultBackend != nil {
			return true
		}
		for _, r := range i.Spec.Rules {
			if r.Host == name {
				return true
			}
		}
		for _, s := range i.Spec.TLS {
			if !strings.HasPrefix(name, "*") && slices.Contains(s.Hosts, name) {
				return true
			}
		}
		return false
	}
	oldest := func(name string) (out *networkingv1.Ingress) {
		for _, i := range all {
			if claims(i, name) && (out == nil || older(i, out) < 0) {
				out = i
			}
		}
		return out
	}
	exact, wild := oldest(host), oldest(wildcard(host))
	switch {
	case exact == nil && wild == nil:
		if anyHost := oldest(""); anyHost != nil {
			return anyHost.Namespace
		}
		return ""
	case exact == nil || wild != nil && older(wild, exact) < 0:
		return wild.Namespace
	}
	return exact.Namespace
}

// TestOwnersAgainstModel checks with random Ingresses in random order that the paths and
// certificates of a host are from the namespace that owns the host.
func TestOwnersAgainstModel(t *testing.T) {
	named := []string{"", "a.org", "x.a.org", "y.a.org", "*.a.org", "*.x.a.org", "z.x.a.org"}
	paths := []string{"/", "/a", "/a/b"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ingresses")
		all := make([]*networkingv1.Ingress, 0, n)
		for i := range n {
			ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{
				Namespace: rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "namespace"),
				Name:      fmt.Sprint(i), UID: types.UID(fmt.Sprint(n - i)),
				CreationTimestamp: metav1.Unix(int64(rapid.IntRange(0, 3).Draw(t, "created")), 0),
			}}
			for range rapid.IntRange(0, 2).Draw(t, "rules") {
				http := &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
					Path:     rapid.SampledFrom(paths).Draw(t, "path"),
					PathType: ptr.To(networkingv1.PathTypePrefix), Backend: backend("s"),
				}}}
				ing.Spec.Rules = append(ing.Spec.Rules,
					networkingv1.IngressRule{Host: rapid.SampledFrom(named).Draw(t, "host"),
						IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}})
			}
			if rapid.Bool().Draw(t, "default") {
				ing.Spec.DefaultBackend = ptr.To(backend("d"))
			}
			if rapid.Bool().Draw(t, "tls") {
				ing.Spec.TLS = []networkingv1.IngressTLS{
					{Hosts: rapid.SliceOfN(rapid.SampledFrom(named[1:]), 0, 2).Draw(t, "certified"), SecretName: "tls"}}
			}
			all = append(all, ing)
		}
		certs := map[string]*tls.Certificate{"n1": {}, "n2": {}, "n3": {}}
		build := func(list []*networkingv1.Ingress) *Table {
			return Build(list, noBackends(), func(namespace, _ string) *tls.Certificate { return certs[namespace] })
		}
		table, again := build(all), build(rapid.Permutation(all).Draw(t, "order"))
		for _, host := range []string{"a.org", "x.a.org", "y.a.org", "q.a.org", "z.x.a.org", "q.x.a.org", "other", ""} {
			owner := naiveOwner(all, host)
			for _, path := range paths {
				b, same := table.Route(host, path), again.Route(host, path)
				if b != nil && b.Namespace != owner {
					t.Fatalf("%s%s belongs to %q and goes to %s", host, path, owner, b.Name)
				}
				if (b == nil) != (same == nil) || b != nil && b.Name != same.Name {
					t.Fatalf("%s%s depends on the order: %v, %v", host, path, b, same)
				}
			}
			if c := table.Certificate(host); c != nil && c != certs[owner] || c != again.Certificate(host) {
				t.Fatalf("%s belongs to %q and has the certificate of another", host, owner)
			}
		}
	})
}
