// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// backend returns a reference to port 80 of a Service.
func backend(service string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service,
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
}

// path parses a path type, a path and a Service, such as "Prefix /a to a".
func path(t *testing.T, text string) networkingv1.HTTPIngressPath {
	t.Helper()
	f := strings.Fields(text)
	if len(f) != 4 || f[2] != "to" {
		t.Fatalf("%q is not a path", text)
	}
	return networkingv1.HTTPIngressPath{PathType: ptr.To(networkingv1.PathType(f[0])), Path: f[1], Backend: backend(f[3])}
}

// ing returns an Ingress for one host. age is in seconds and at most 100.
func ing(t *testing.T, age int, host string, paths ...string) *networkingv1.Ingress {
	t.Helper()
	out := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: host,
		CreationTimestamp: metav1.Unix(int64(100-age), 0)}}
	http := &networkingv1.HTTPIngressRuleValue{}
	for _, p := range paths {
		http.Paths = append(http.Paths, path(t, p))
	}
	out.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}}}
	return out
}

func noBackends() Backends {
	return NewBackends(func(string, string) *v1.Service { return nil }, nil)
}

func noCertificates(string, string) *tls.Certificate { return nil }

// where returns the name of the Service to which a request is forwarded, or "" if no rule matches.
func where(table *Table, host, path string) string {
	b := table.Route(host, path)
	if b == nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.Name, "ns/"), ":80")
}

// TestPaths checks the examples of path types in the API reference.
func TestPaths(t *testing.T) {
	for name, tc := range map[string]struct {
		paths      []string
		path, want string
	}{
		"All":                      {[]string{"Prefix / to s"}, "/any/thing", "s"},
		"Exact":                    {[]string{"Exact /foo to s"}, "/foo", "s"},
		"ExactIsNotAnother":        {[]string{"Exact /foo to s"}, "/bar", ""},
		"ExactMindsTheSlash":       {[]string{"Exact /foo to s"}, "/foo/", ""},
		"ExactMindsItsOwnSlash":    {[]string{"Exact /foo/ to s"}, "/foo", ""},
		"ExactMindsCase":           {[]string{"Exact /foo to s"}, "/Foo", ""},
		"Prefix":                   {[]string{"Prefix /foo to s"}, "/foo", "s"},
		"PrefixWithSlash":          {[]string{"Prefix /foo to s"}, "/foo/", "s"},
		"PrefixOfItsSlash":         {[]string{"Prefix /foo/ to s"}, "/foo", "s"},
		"PrefixBySlashes":          {[]string{"Prefix /foo/ to s"}, "/foo/", "s"},
		"PrefixIsByElements":       {[]string{"Prefix /aaa/bb to s"}, "/aaa/bbb", ""},
		"PrefixOfTwo":              {[]string{"Prefix /aaa/bbb to s"}, "/aaa/bbb", "s"},
		"PrefixIgnoresItsEnd":      {[]string{"Prefix /aaa/bbb/ to s"}, "/aaa/bbb", "s"},
		"PrefixIgnoresTheEnd":      {[]string{"Prefix /aaa/bbb to s"}, "/aaa/bbb/", "s"},
		"PrefixOfMore":             {[]string{"Prefix /aaa/bbb to s"}, "/aaa/bbb/ccc", "s"},
		"PrefixOfLonger":           {[]string{"Prefix /aaa/bbb to s"}, "/aaa/bbbxyz", ""},
		"LongestOfTwo":             {[]string{"Prefix / to a", "Prefix /aaa to s"}, "/aaa/ccc", "s"},
		"LongestOfThree":           {[]string{"Prefix / to a", "Prefix /aaa to b", "Prefix /aaa/bbb to s"}, "/aaa/bbb", "s"},
		"AllForTheRest":            {[]string{"Prefix / to s", "Prefix /aaa to b"}, "/ccc", "s"},
		"NoneOfOne":                {[]string{"Prefix /aaa to b"}, "/ccc", ""},
		"ExactBeforePrefix":        {[]string{"Prefix /foo to b", "Exact /foo to s"}, "/foo", "s"},
		"ImplementationIsAPrefix":  {[]string{"ImplementationSpecific /foo to s"}, "/foo/bar", "s"},
		"FirstOfTheSame":           {[]string{"Prefix /foo to s", "Prefix /foo/ to b"}, "/foo", "s"},
		"DoubledSlashIsAnElement":  {[]string{"Prefix /foo to s"}, "//foo", ""},
		"ManySlashes":              {[]string{"Prefix /foo to s"}, "/foo" + strings.Repeat("/", 5000), "s"},
		"MarkupIsCompared":         {[]string{"Prefix /.* to s"}, "/foo", ""},
		"NothingBelowAnEmptyTable": {nil, "/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			table := Build([]*networkingv1.Ingress{ing(t, 0, "example.org", tc.paths...)}, noBackends(), noCertificates)
			if got := where(table, "example.org", tc.path); got != tc.want {
				t.Errorf("%v: %s goes to %q, want %q", tc.paths, tc.path, got, tc.want)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	withDefault := ing(t, 0, "default.example.org", "Exact /only to only")
	withDefault.Spec.DefaultBackend = ptr.To(backend("its-default"))
	all := []*networkingv1.Ingress{
		ing(t, 0, "a.example.org", "Prefix / to a"), ing(t, 0, "*.example.org", "Prefix / to wild"),
		ing(t, 0, "", "Prefix /any to any"),
		ing(t, 9, "old.example.org", "Prefix / to old"),
		ing(t, 1, "old.example.org", "Prefix / to young", "Prefix /more to more"),
		ing(t, 0, "some.example.net", "Prefix /some to some"), withDefault,
	}
	table := Build(all, noBackends(), noCertificates)
	for name, tc := range map[string]struct{ host, path, want string }{
		"ItsOwn":             {"a.example.org", "/", "a"},
		"Port":               {"a.example.org:8080", "/", "a"},
		"Case":               {"A.Example.ORG", "/", "a"},
		"Dot":                {"a.example.org.", "/", "a"},
		"Wildcard":           {"b.example.org", "/", "wild"},
		"WildcardIsOneLabel": {"c.b.example.org", "/", "its-default"},
		"WildcardIsNotNone":  {"example.org", "/", "its-default"},
		"NoHost":             {"else.where", "/any/x", "any"},
		"NoHostForAHost":     {"some.example.net", "/any", "any"},
		"OlderHasIt":         {"old.example.org", "/", "old"},
		"BothAreServed":      {"old.example.org", "/more", "more"},
		"Default":            {"else.where", "/", "its-default"},
		"DefaultOfItsHost":   {"default.example.org", "/only", "only"},
		"Address":            {"192.0.2.1:80", "/any", "any"},
		"AddressOfSix":       {"[2001:db8::1]:80", "/any", "any"},
		"Empty":              {"", "/any", "any"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := where(table, tc.host, tc.path); got != tc.want {
				t.Errorf("%s%s goes to %q, want %q", tc.host, tc.path, got, tc.want)
			}
		})
	}
}

// TestPathsAgainstDefinition compares routes with a model that follows the definition of path types
// literally: it splits paths into elements, and tries the longest path first.
func TestPathsAgainstDefinition(t *testing.T) {
	elements := rapid.SampledFrom([]string{"a", "b", "ab", "", "c"})
	joined := rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(elements, 0, 4).Draw(t, "elements"), "/")
	})
	split := func(path string) []string {
		return strings.Split(strings.TrimRight(path, "/"), "/")
	}
	rapid.Check(t, func(t *rapid.T) {
		type rule struct {
			path  string
			exact bool
		}
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rule {
			return rule{joined.Draw(t, "path"), rapid.Bool().Draw(t, "exact")}
		}), 0, 5).Draw(t, "rules")
		http := &networkingv1.HTTPIngressRuleValue{}
		for _, r := range rules {
			p := networkingv1.HTTPIngressPath{Path: r.path, PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: backend("prefix" + strings.TrimRight(r.path, "/"))}
			if r.exact {
				p.PathType, p.Backend = ptr.To(networkingv1.PathTypeExact), backend("exact"+r.path)
			}
			http.Paths = append(http.Paths, p)
		}
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		i.Spec.Rules = []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}}}
		asked := joined.Draw(t, "asked")
		want, longest := "", -1
		for _, r := range rules {
			parts := split(r.path)
			switch {
			case r.exact && r.path == asked:
				want, longest = "exact"+r.path, 1<<30
			case !r.exact && len(parts) > longest && len(parts) <= len(strings.Split(asked, "/")):
				if strings.Join(strings.Split(asked, "/")[:len(parts)], "/") == strings.Join(parts, "/") {
					want, longest = "prefix"+strings.TrimRight(r.path, "/"), len(parts)
				}
			}
		}
		if got := where(Build([]*networkingv1.Ingress{i}, noBackends(), noCertificates), "any", asked); got != want {
			t.Fatalf("%v: %s goes to %q, want %q", rules, asked, got, want)
		}
	})
}

func TestCertificates(t *testing.T) {
	secrets := map[string]*tls.Certificate{"ns/one": {}, "ns/wild": {}, "ns/all": {}}
	of := func(namespace, name string) *tls.Certificate { return secrets[namespace+"/"+name] }
	one, wild, all, young := ing(t, 3, "one.example.org"), ing(t, 3, "*.example.org"),
		ing(t, 3, "all.example.net"), ing(t, 1, "one.example.org")
	one.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"One.example.org", "missing.example.net"},
		SecretName: "one"}, {Hosts: []string{"gone.example.net"}, SecretName: "gone"}}
	wild.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"*.example.org"}, SecretName: "wild"}}
	all.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "all"}}
	young.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"one.example.org"}, SecretName: "all"}}
	table := Build([]*networkingv1.Ingress{young, one, wild, all}, noBackends(), of)
	for host, want := range map[string]*tls.Certificate{
		"one.example.org": secrets["ns/one"], "ONE.example.org:443": secrets["ns/one"],
		"two.example.org": secrets["ns/wild"], "all.example.net": secrets["ns/all"],
		"gone.example.net": nil, "example.org": nil, "": nil, "a.b.example.org": nil,
	} {
		if got := table.Certificate(host); got != want {
			t.Errorf("%q: wrong certificate (none: %v)", host, got == nil)
		}
	}
}

func TestBackends(t *testing.T) {
	ready := func(address string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: []string{address}} }
	ending := discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true)}}
	dead := discoveryv1.Endpoint{Addresses: []string{"10.0.0.8"},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}}
	named := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
		Port: networkingv1.ServiceBackendPort{Name: "web"}}}
	numbered := ptr.To(backend("s"))
	for name, tc := range map[string]struct {
		ref       *networkingv1.IngressBackend
		kind      v1.ServiceType
		endpoints []discoveryv1.Endpoint
		want      string
	}{
		"ByName": {named, "", []discoveryv1.Endpoint{ready("10.0.0.2"), ready("10.0.0.1"),
			ready("10.0.0.1")}, "10.0.0.1:8080 10.0.0.2:8080"},
		"ByNumber":      {numbered, "", []discoveryv1.Endpoint{ready("10.0.0.1")}, "10.0.0.1:8080"},
		"Six":           {numbered, "", []discoveryv1.Endpoint{ready("fd00::1")}, "[fd00::1]:8080"},
		"ReadyOnly":     {numbered, "", []discoveryv1.Endpoint{ready("10.0.0.1"), ending, dead}, "10.0.0.1:8080"},
		"EndingAtLeast": {numbered, "", []discoveryv1.Endpoint{ending, dead}, "10.0.0.9:8080"},
		"NeitherLoopback": {numbered, "", []discoveryv1.Endpoint{ready("127.0.0.1"), ready("::1"),
			ready("::ffff:127.0.0.1")}, ""},
		"NorLinkLocal": {numbered, "", []discoveryv1.Endpoint{ready("169.254.169.254"), ready("fe80::1"),
			ready("0.0.0.0"), ready("224.0.0.1")}, ""},
		"NorExternalName": {numbered, v1.ServiceTypeExternalName, []discoveryv1.Endpoint{ready("10.0.0.1")}, ""},
		"NorAnotherPort": {
			&networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
				Port: networkingv1.ServiceBackendPort{Number: 81}}}, "", []discoveryv1.Endpoint{ready("10.0.0.1")}, ""},
		"NorAResource": {
			&networkingv1.IngressBackend{Resource: &v1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}, "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			svc := &v1.Service{Spec: v1.ServiceSpec{Type: tc.kind,
				Ports: []v1.ServicePort{{Name: "web", Port: 80, Protocol: v1.ProtocolTCP},
					{Name: "udp", Port: 81, Protocol: v1.ProtocolUDP}}}}
			slice := &discoveryv1.EndpointSlice{Endpoints: tc.endpoints,
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To[int32](8080)},
					{Name: ptr.To("udp"), Port: ptr.To[int32](53)}}}
			bs := NewBackends(func(string, string) *v1.Service { return svc },
				func(string, string) []*discoveryv1.EndpointSlice { return []*discoveryv1.EndpointSlice{slice} })
			if got := strings.Join(bs.find("ns", tc.ref).Endpoints, " "); got != tc.want {
				t.Errorf("endpoints %q, want %q", got, tc.want)
			}
		})
	}
}

// BenchmarkBuild builds the table of many Ingresses, as the controller does after each change.
func BenchmarkBuild(b *testing.B) {
	var all []*networkingv1.Ingress
	for i := range 1000 {
		host := "h" + strings.Repeat("x", i%50) + ".example.org"
		all = append(all, &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: host,
				CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0))},
			Spec: networkingv1.IngressSpec{
				Rules: []networkingv1.IngressRule{
					{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
						Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
							Backend: backend("s")}},
					}}}}},
		})
	}
	for b.Loop() {
		Build(all, noBackends(), noCertificates)
	}
}
