// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"pgregory.net/rapid"
)

// model is a simple model of the index: it decides by examining all roles and bindings.
type model struct {
	roles    map[roleKey][]rbacv1.PolicyRule
	bindings map[roleKey]binding
}

func (m *model) allows(attrs authorizer.Attributes) bool {
	for key, b := range m.bindings {
		if key.namespace != "" && key.namespace != attrs.GetNamespace() {
			continue
		}
		for _, s := range b.subjects {
			if !m.is(attrs.GetUser(), s, key.namespace) {
				continue
			}
			for _, rule := range m.roles[b.role] {
				if m.ruleAllows(rule, attrs) {
					return true
				}
			}
		}
	}
	return false
}

func (m *model) is(u user.Info, s rbacv1.Subject, namespace string) bool {
	switch s.Kind {
	case "User":
		return u.GetName() == s.Name
	case "Group":
		return slices.Contains(u.GetGroups(), s.Name)
	case "ServiceAccount":
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return namespace != "" && u.GetName() == "system:serviceaccount:"+namespace+":"+s.Name
	}
	return false
}

func (m *model) ruleAllows(r rbacv1.PolicyRule, a authorizer.Attributes) bool {
	in := func(list []string, s string) bool { return slices.Contains(list, "*") || slices.Contains(list, s) }
	if !in(r.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		for _, u := range r.NonResourceURLs {
			if u == a.GetPath() || (strings.HasSuffix(u, "*") && strings.HasPrefix(a.GetPath(), strings.TrimRight(u, "*"))) {
				return true
			}
		}
		return false
	}
	want := a.GetResource()
	if a.GetSubresource() != "" {
		want += "/" + a.GetSubresource()
	}
	if !in(r.APIGroups, a.GetAPIGroup()) {
		return false
	}
	if !in(r.Resources, want) && (a.GetSubresource() == "" || !slices.Contains(r.Resources, "*/"+a.GetSubresource())) {
		return false
	}
	return len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName())
}

func some(values ...string) *rapid.Generator[[]string] {
	return rapid.SliceOfN(rapid.SampledFrom(values), 1, 2)
}

// TestIndexDecidesAsTheModel changes random roles and bindings, and checks that the index and the
// model decide requests alike.
func TestIndexDecidesAsTheModel(t *testing.T) { rapid.Check(t, decidesAsTheModel) }

// FuzzIndex is TestIndexDecidesAsTheModel as a fuzz test.
func FuzzIndex(f *testing.F) {
	for _, length := range []int{64, 512, 4096} {
		seed := make([]byte, length)
		_, _ = rand.NewChaCha8([32]byte{byte(length)}).Read(seed)
		f.Add(seed)
	}
	f.Fuzz(rapid.MakeFuzz(decidesAsTheModel))
}

func drawRule(t *rapid.T) rbacv1.PolicyRule {
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		return rbacv1.PolicyRule{Verbs: some("get", "*").Draw(t, "verbs"),
			NonResourceURLs: some("/healthz", "/api/*", "/api**", "*").Draw(t, "urls")}
	}
	r := rbacv1.PolicyRule{
		Verbs: some("get", "list", "*").Draw(t, "verbs"), APIGroups: some("", "apps", "*").Draw(t, "groups"),
		Resources: some("pods", "pods/log", "pods/*", "*/scale", "*", "/log", "*/").Draw(t, "resources"),
	}
	if rapid.Bool().Draw(t, "named") {
		r.ResourceNames = some("x", "y", "").Draw(t, "names")
	}
	return r
}

// requests returns requests of u with all combinations of values that the rules in this test use.
func requests(u user.Info) (out []authorizer.AttributesRecord) {
	for _, verb := range []string{"get", "list"} {
		for _, path := range []string{"/healthz", "/api/v1", "/api", ""} {
			out = append(out, authorizer.AttributesRecord{User: u, Verb: verb, Path: path})
		}
		for _, namespace := range []string{"", "a", "b"} {
			for _, group := range []string{"", "apps"} {
				for _, resource := range []string{"pods", "secrets", "pods/log"} {
					for _, sub := range []string{"", "log", "scale", "log/x"} {
						for _, name := range []string{"", "x"} {
							out = append(out, authorizer.AttributesRecord{
								User: u, Verb: verb, Namespace: namespace, APIGroup: group, Resource: resource,
								Subresource: sub, Name: name, ResourceRequest: true,
							})
						}
					}
				}
			}
		}
	}
	return out
}

func decidesAsTheModel(t *rapid.T) {
	x := NewIndex()
	m := &model{map[roleKey][]rbacv1.PolicyRule{}, map[roleKey]binding{}}
	namespaces := rapid.SampledFrom([]string{"", "a", "b"})
	names := rapid.SampledFrom([]string{"one", "two", "three"})
	rules := rapid.SliceOfN(rapid.Custom(drawRule), 0, 3)
	subjects := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rbacv1.Subject {
		return rbacv1.Subject{
			Kind: rapid.SampledFrom([]string{"User", "Group", "ServiceAccount", "Node"}).Draw(t, "kind"),
			Name: rapid.SampledFrom([]string{"u", "v", "g"}).Draw(t, "name"), Namespace: namespaces.Draw(t, "ns"),
		}
	}), 0, 3)
	t.Repeat(map[string]func(*rapid.T){
		"set role": func(t *rapid.T) {
			k := roleKey{namespaces.Draw(t, "ns"), names.Draw(t, "name")}
			m.roles[k] = rules.Draw(t, "rules")
			x.SetRole(k.namespace, k.name, m.roles[k])
		},
		"delete role": func(t *rapid.T) {
			k := roleKey{namespaces.Draw(t, "ns"), names.Draw(t, "name")}
			delete(m.roles, k)
			x.DeleteRole(k.namespace, k.name)
		},
		"set binding": func(t *rapid.T) {
			k := roleKey{namespaces.Draw(t, "ns"), names.Draw(t, "name")}
			ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: names.Draw(t, "role")}
			b := binding{key: k, role: roleKey{"", ref.Name}, subjects: subjects.Draw(t, "subjects")}
			if k.namespace != "" && rapid.Bool().Draw(t, "local") {
				ref.Kind, b.role.namespace = "Role", k.namespace
			}
			m.bindings[k] = b
			x.SetBinding(k.namespace, k.name, ref, b.subjects)
		},
		"delete binding": func(t *rapid.T) {
			k := roleKey{namespaces.Draw(t, "ns"), names.Draw(t, "name")}
			delete(m.bindings, k)
			x.DeleteBinding(k.namespace, k.name)
		},
		"": func(t *rapid.T) {
			u := &user.DefaultInfo{
				Name: rapid.SampledFrom([]string{"u", "v", "system:serviceaccount:a:u",
					"system:serviceaccount:b:g"}).Draw(t, "user"),
				Groups: rapid.SliceOfN(rapid.SampledFrom([]string{"g", "u", "h"}), 0, 2).Draw(t, "groups"),
			}
			grants := guarded{m: m, x: x, user: u, rules: rules.Draw(t, "granted"), may: map[string]bool{}}
			for _, attrs := range requests(u) {
				decision, reason, err := x.Authorize(t.Context(), attrs)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := decision == authorizer.DecisionAllow, m.allows(attrs); got != want {
					t.Fatalf("Authorize(%+v) = %v (%s), the model says %v", attrs, got, reason, want)
				}
				grants.check(t, attrs)
			}
		},
	})
}

// guarded checks that if the guard lets a user grant rules, the user has all rights in the rules.
type guarded struct {
	m     *model
	x     *Index
	user  user.Info
	rules []rbacv1.PolicyRule
	may   map[string]bool // by namespace: whether the guard lets the user grant the rules
}

func (g *guarded) check(t *rapid.T, attrs authorizer.AttributesRecord) {
	i := slices.IndexFunc(g.rules, func(r rbacv1.PolicyRule) bool { return g.m.ruleAllows(r, attrs) })
	if i < 0 || g.m.allows(attrs) {
		return
	}
	may, known := g.may[attrs.Namespace]
	if !known {
		may = (&Guard{Rules: g.x}).holds(g.user, schema.GroupResource{}, attrs.Namespace, g.rules) == nil
		g.may[attrs.Namespace] = may
	}
	if may {
		t.Fatalf("%v may grant %+v, which allows %+v, and may not do that", g.user, g.rules[i], attrs)
	}
}

func TestReasons(t *testing.T) {
	x := NewIndex()
	x.SetRole("", "reader",
		[]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}})
	x.SetBinding("", "readers", rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		[]rbacv1.Subject{{Kind: "Group", Name: "g"}})
	x.SetBinding("ns", "sa", rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "s", Namespace: "ns"}})
	x.SetBinding("ns", "both", rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		[]rbacv1.Subject{{Kind: "Group", Name: "h"}, {Kind: "User", Name: "v"}})
	x.SetBinding("ns", "local", rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "l"}})
	x.SetBinding("", "dangling", rbacv1.RoleRef{Kind: "ClusterRole", Name: "gone"},
		[]rbacv1.Subject{{Kind: "User", Name: "w"}})
	for name, tc := range map[string]struct {
		user user.DefaultInfo
		want string
	}{
		"group": {user.DefaultInfo{Name: "u", Groups: []string{"g"}},
			`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "g"`},
		"service account": {user.DefaultInfo{Name: "system:serviceaccount:ns:s"},
			`RBAC: allowed by RoleBinding "sa/ns" of ClusterRole "reader" to ServiceAccount "s/ns"`},
		"first subject": {user.DefaultInfo{Name: "v", Groups: []string{"h"}},
			`RBAC: allowed by RoleBinding "both/ns" of ClusterRole "reader" to Group "h"`},
		"local account": {user.DefaultInfo{Name: "system:serviceaccount:ns:l"},
			`RBAC: allowed by RoleBinding "local/ns" of ClusterRole "reader" to ServiceAccount "l/ns"`},
		"missing role": {user.DefaultInfo{Name: "w"}, `RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`},
		"nobody":       {user.DefaultInfo{Name: "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, reason, err := x.Authorize(t.Context(), authorizer.AttributesRecord{
				User: &tc.user, Verb: "get", Namespace: "ns", Resource: "pods", ResourceRequest: true,
			})
			if err != nil || reason != tc.want {
				t.Errorf("got %q, %v; want %q", reason, err, tc.want)
			}
		})
	}
}

// TestRulesAreCountedOnce checks the order of the rules of a user. If several subjects of a binding
// match the user, its rules must be in the list once.
func TestRulesAreCountedOnce(t *testing.T) {
	x := NewIndex()
	for _, name := range []string{"one", "two"} {
		x.SetRole("", name, []rbacv1.PolicyRule{{Verbs: []string{name}}})
	}
	x.SetBinding("", "b", rbacv1.RoleRef{Kind: "ClusterRole", Name: "two"},
		[]rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "User", Name: "u"}, {Kind: "Group", Name: "g"}})
	x.SetBinding("", "a", rbacv1.RoleRef{Kind: "ClusterRole", Name: "one"}, []rbacv1.Subject{{Kind: "Group", Name: "g"}})
	x.SetBinding("", "c", rbacv1.RoleRef{Kind: "ClusterRole", Name: "gone"},
		[]rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "Group", Name: "g"}})
	rules, missing := x.Rules(&user.DefaultInfo{Name: "u", Groups: []string{"g", "g"}}, "ns")
	if got := fmt.Sprint(rules); got != "[{[one] [] [] [] []} {[two] [] [] [] []}]" {
		t.Error(got)
	}
	if len(missing) != 1 || missing[0].Name != "gone" {
		t.Error(missing)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	x := NewIndex()
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	for i := range 10_000 {
		ns, name := fmt.Sprintf("ns-%d", i%500), fmt.Sprintf("r-%d", i)
		x.SetRole(ns, name, rules)
		x.SetBinding(ns, name, rbacv1.RoleRef{Kind: "Role", Name: name},
			[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: ns}})
	}
	attrs := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "system:serviceaccount:ns-7:default",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns-7", "system:authenticated"}},
		Verb: "list", Namespace: "ns-7", Resource: "pods", ResourceRequest: true,
	}
	b.ReportAllocs()
	for b.Loop() {
		if d, _, _ := x.Authorize(b.Context(), attrs); d == authorizer.DecisionAllow {
			b.Fatal("allowed")
		}
	}
}
