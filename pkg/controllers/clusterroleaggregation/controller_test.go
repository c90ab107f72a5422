// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterroleaggregation

import (
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func role(name string, set map[string]string, verbs ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
	for _, v := range verbs {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{v}, APIGroups: []string{"example.com"},
			Resources: []string{"things"}})
	}
	return r
}

func TestAggregate(t *testing.T) {
	yes := map[string]string{"to": "x"}
	sum := role("sum", yes, "own")
	sum.AggregationRule = &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: yes}, {MatchLabels: map[string]string{"to": "y"}}}}
	all := []*rbacv1.ClusterRole{sum, role("b", yes, "get", "list"), role("a", yes, "list"),
		role("c", nil, "no"), role("y", map[string]string{"to": "y"}, "get", "watch")}
	rules, err := aggregate(sum, all)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rules {
		got = append(got, r.Verbs...)
	}
	if want := []string{"list", "get", "watch"}; !slices.Equal(got, want) {
		t.Errorf("verbs %v, want %v", got, want)
	}
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Run(t, s, controller.Options{}, New)
	roles := s.Client.RbacV1().ClusterRoles()
	extra := role("things-editor", map[string]string{"rbac.authorization.k8s.io/aggregate-to-edit": "true"}, "create")
	if _, err := roles.Create(t.Context(), extra, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has := func(name string) func(context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			r, err := roles.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			return r.Rules, slices.ContainsFunc(r.Rules,
				func(p rbacv1.PolicyRule) bool { return slices.Contains(p.Resources, "things") }) && len(r.Rules) > 5
		}
	}
	controllertest.Eventually(t, "edit has the rule", has("edit"))
	controllertest.Eventually(t, "admin has it through edit", has("admin"))
	if err := roles.Delete(t.Context(), extra.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "admin has lost it", func(ctx context.Context) (any, bool) {
		got, yes := has("admin")(ctx)
		return got, !yes
	})
}
