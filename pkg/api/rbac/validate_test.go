// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/rowtest"
)

func TestRoles(t *testing.T) {
	const valid = `{metadata: {name: "system:reader"}, rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]}`
	rules := []rowtest.Case{
		{"valid", ``, ""},
		{"no rules", `rules: null`, ""},
		{"no verbs", `rules: [{apiGroups: [""], resources: [pods]}]`, "rules[0].verbs: Required value"},
		{"unknown group", `rules: [{verbs: [get], resources: [pods]}]`, "rules[0].apiGroups: Required value"},
		{"no resources", `rules: [{verbs: [get], apiGroups: [""]}]`, "rules[0].resources: Required value"},
		{"names of resources", `rules: [{verbs: [get], apiGroups: [""], resources: [pods], resourceNames: [a]}]`, ""},
		{"paths and resources", `rules: [{verbs: [get], apiGroups: [""], resources: [pods], nonResourceURLs: [/healthz]}]`,
			"rules[0].nonResourceURLs: Invalid value"},
		{"second rule", `rules: [{verbs: [get], apiGroups: [""], resources: [pods]}, {}]`,
			"rules[1].verbs: Required value, rules[1].apiGroups: Required value, rules[1].resources: Required value"},
	}
	paths := `rules: [{verbs: [get], nonResourceURLs: [/healthz]}]`
	for name, cases := range map[string][]rowtest.Case{
		"roles": {{"paths", paths, "rules[0].nonResourceURLs: Invalid value"}},
		"clusterroles": {
			{"paths", paths, ""},
			{"aggregation", `aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}`, ""},
			{"aggregation without selectors", `aggregationRule: {}`, "aggregationRule.clusterRoleSelectors: Required value"},
			{"aggregation with an invalid selector", `aggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, ` +
				`operator: In}]}]}`,
				"aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value, " +
					"aggregationRule.clusterRoleSelectors[0]: Invalid value"},
		},
	} {
		row := rowtest.Row(t, Rows(nil), name)
		rowtest.Creates(t, row, valid, slices.Concat(rules, cases))
		rowtest.Updates(t, row, "", valid, slices.Concat(rules, cases))
	}
}

func TestBindings(t *testing.T) {
	const valid = `{metadata: {name: b}, roleRef: {kind: ClusterRole, name: "system:reader"}, ` +
		`subjects: [{kind: User, name: u}]}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"no subjects", `subjects: null`, ""},
		{"group", `subjects: [{kind: Group, name: g}]`, ""},
		{"subject without a name", `subjects: [{kind: User}]`, "subjects[0].name: Required value"},
		{"user with another API group", `subjects: [{kind: User, name: u, apiGroup: other}]`,
			"subjects[0].apiGroup: Unsupported value"},
		{"account", `subjects: [{kind: ServiceAccount, name: a, namespace: ns}]`, ""},
		{"account with an API group", `subjects: [{kind: ServiceAccount, name: a, namespace: ns, ` +
			`apiGroup: rbac.authorization.k8s.io}]`,
			"subjects[0].apiGroup: Unsupported value"},
		{"account with a bad name", `subjects: [{kind: ServiceAccount, name: "a:b", namespace: ns}]`,
			"subjects[0].name: Invalid value"},
		{"unknown kind of subject", `subjects: [{kind: Pod, name: p}]`, "subjects[0].kind: Unsupported value"},
	}
	refs := []rowtest.Case{
		{"role of another group", `roleRef: {apiGroup: other}`, "roleRef.apiGroup: Unsupported value"},
		{"role of another kind", `roleRef: {kind: Pod}`, "roleRef.kind: Unsupported value"},
		{"role without a name", `roleRef: {name: null}`, "roleRef.name: Required value"},
		{"role whose name has a slash", `roleRef: {name: a/b}`, "roleRef.name: Invalid value"},
	}
	for name, own := range map[string][]rowtest.Case{
		"rolebindings": {
			{"account without a namespace", `subjects: [{kind: ServiceAccount, name: a}]`, ""},
		},
		"clusterrolebindings": {
			{"account without a namespace", `subjects: [{kind: ServiceAccount, ` +
				`name: a}]`, "subjects[0].namespace: Required value"},
		},
	} {
		row := rowtest.Row(t, Rows(nil), name)
		rowtest.Creates(t, row, valid, slices.Concat(cases, own, refs))
		rowtest.Updates(t, row, "", valid, slices.Concat(cases, own))
		rowtest.Updates(t, row, "", valid,
			[]rowtest.Case{{"another role", `roleRef: {name: other}`, "roleRef: Invalid value"}})
	}
	role := []rowtest.Case{{"role", `roleRef: {kind: Role}`, ""}}
	rowtest.Creates(t, rowtest.Row(t, Rows(nil), "rolebindings"), valid, role)
	role[0][2] = "roleRef.kind: Unsupported value"
	rowtest.Creates(t, rowtest.Row(t, Rows(nil), "clusterrolebindings"), valid, role)
}

func TestBindingCells(t *testing.T) {
	row := rowtest.Row(t, Rows(nil), "rolebindings")
	obj := rowtest.Decode(t, row, "b", `{"roleRef":{"kind":"Role","name":"r"},"subjects":[
		{"kind":"User","name":"u"},{"kind":"User","name":"v"},{"kind":"Group","name":"g"},
		{"kind":"ServiceAccount","name":"a","namespace":"n"}]}`)
	got := row.Cells(obj, resource.CellEnv{Age: func(metav1.Time) string { return "5m" }})
	if want := []any{"b", "Role/r", "5m", "u, v", "g", "n/a"}; !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
}

// TestSubjectOf converts subjects of v1alpha1, which have an API version. The user "*" becomes the
// group of all authenticated users.
func TestSubjectOf(t *testing.T) {
	for _, tc := range []struct {
		older rbacv1alpha1.Subject
		want  rbacv1.Subject
	}{
		{rbacv1alpha1.Subject{Kind: "User", Name: "u"}, rbacv1.Subject{Kind: "User", Name: "u", APIGroup: rbacv1.GroupName}},
		{rbacv1alpha1.Subject{Kind: "User", Name: "*"},
			rbacv1.Subject{Kind: "Group", Name: "system:authenticated", APIGroup: rbacv1.GroupName}},
		{rbacv1alpha1.Subject{Kind: "Group", Name: "*"},
			rbacv1.Subject{Kind: "Group", Name: "*", APIGroup: rbacv1.GroupName}},
		{rbacv1alpha1.Subject{Kind: "ServiceAccount", APIVersion: "v1", Name: "a", Namespace: "n"},
			rbacv1.Subject{Kind: "ServiceAccount", Name: "a", Namespace: "n"}},
		{rbacv1alpha1.Subject{Kind: "Robot", APIVersion: "x.example/v1", Name: "r"},
			rbacv1.Subject{Kind: "Robot", Name: "r", APIGroup: "x.example"}},
	} {
		if got := subjectOf(tc.older); got != tc.want {
			t.Errorf("%+v becomes %+v, want %+v", tc.older, got, tc.want)
		}
	}
}
