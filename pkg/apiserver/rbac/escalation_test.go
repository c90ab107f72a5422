// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestGuardSaysWhatIsLacking checks the errors for a user who may bind the roles of
// rbac.authorization.k8s.io, and whose other bindings refer to roles that do not exist.
func TestGuardSaysWhatIsLacking(t *testing.T) {
	x := NewIndex()
	x.SetRole("", "binder",
		[]rbacv1.PolicyRule{{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}}})
	x.SetRole("", "target",
		[]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}})
	u := []rbacv1.Subject{{Kind: "User", Name: "u"}}
	x.SetBinding("", "binder", rbacv1.RoleRef{Kind: "ClusterRole", Name: "binder"}, u)
	x.SetBinding("ns", "z", rbacv1.RoleRef{Kind: "Role", Name: "lost"}, u)
	x.SetBinding("ns", "a", rbacv1.RoleRef{Kind: "ClusterRole", Name: "gone"}, u)
	x.SetBinding("ns", "b", rbacv1.RoleRef{Kind: "Role", Name: "gone"}, u)
	const attempt = "user \"u\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n"
	pods := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}
	}
	named := pods("get")
	named.ResourceNames = []string{""}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "x"}
	ref := func(group, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: group, Kind: "ClusterRole", Name: name}
	}
	for name, tc := range map[string]struct {
		obj  runtime.Object
		want string
	}{
		"a verb twice": {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Rules: []rbacv1.PolicyRule{pods("get", "get"), pods("list")}},
			`clusterroles.rbac.authorization.k8s.io "x" is forbidden: ` + attempt +
				`{APIGroups:[""], Resources:["pods"], Verbs:["get" "get" "list"]}`},
		"the empty name": {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Rules: []rbacv1.PolicyRule{pods("list"), named}},
			`clusterroles.rbac.authorization.k8s.io "x" is forbidden: ` + attempt +
				"{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"\"], " +
				"Verbs:[\"get\"]}\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}"},
		"roles that are missing": {&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{pods("get")}},
			`roles.rbac.authorization.k8s.io "x" is forbidden: ` + attempt +
				`{APIGroups:[""], Resources:["pods"], Verbs:["get"]}; resolution errors: ` +
				`[[roles.rbac.authorization.k8s.io "gone" not found, roles.rbac.authorization.k8s.io "lost" not found]]`},
		"a role that may be bound": {&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref(rbacv1.GroupName, "target")}, ""},
		"one of another group": {&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"},
			RoleRef: ref("other", "target")},
			`clusterrolebindings.rbac.authorization.k8s.io "x" is forbidden: ` + attempt +
				`{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Guard{Rules: x, Authorizer: x}
			err := g.CheckWrite(request.WithUser(t.Context(), &user.DefaultInfo{Name: "u"}), tc.obj, nil)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
