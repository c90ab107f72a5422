// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"log/slog"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/apiserver/rbac"
)

// BenchmarkAuthorize authorizes with the whole chain, Node and RBAC, in a cluster with 9,000 role
// bindings and 1,000 cluster role bindings. 20 of the latter are for the user's groups.
func BenchmarkAuthorize(b *testing.B) {
	c, err := Load(Config{Modes: []string{config.ModeNode, config.ModeRBAC}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	x := rbac.NewIndex()
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""},
		Resources: []string{"configmaps", "secrets", "services"}}}
	for i := range 9_000 {
		ns, name := fmt.Sprintf("ns-%d", i%500), fmt.Sprintf("r-%d", i)
		x.SetRole(ns, name, rules)
		x.SetBinding(ns, name, rbacv1.RoleRef{Kind: "Role", Name: name},
			[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: ns}})
	}
	for i := range 1_000 {
		name := fmt.Sprintf("c-%d", i)
		x.SetRole("", name, rules)
		x.SetBinding("", name, rbacv1.RoleRef{Kind: "ClusterRole", Name: name},
			[]rbacv1.Subject{{Kind: "Group", Name: fmt.Sprintf("team-%d", i%50)}})
	}
	x.SetRole("ns-7", "last",
		[]rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}})
	x.SetBinding("ns-7", "last", rbacv1.RoleRef{Kind: "Role", Name: "last"},
		[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: "ns-7"}})
	node := nodeauth.NewAuthorizer(nodeauth.NewGraph(), rbac.Allows(nil), func(string) (bool, bool) { return false, true },
		func() bool { return true })
	if err := c.Build(map[string]Authorizer{config.ModeRBAC: x, config.ModeNode: node}, nil); err != nil {
		b.Fatal(err)
	}
	who := &user.DefaultInfo{Name: "system:serviceaccount:ns-7:default",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns-7", "system:authenticated", "team-7"}}
	for name, test := range map[string]struct {
		verb string
		want authorizer.Decision
	}{"allowed": {"list", authorizer.DecisionAllow}, "refused": {"delete", authorizer.DecisionNoOpinion}} {
		b.Run(name, func(b *testing.B) {
			attrs := authorizer.AttributesRecord{User: who, Verb: test.verb, Namespace: "ns-7",
				Resource: "pods", APIVersion: "v1", ResourceRequest: true}
			b.ReportAllocs()
			for b.Loop() {
				if d, _, _ := c.Authorize(b.Context(), attrs); d != test.want {
					b.Fatal(d)
				}
			}
		})
	}
}
