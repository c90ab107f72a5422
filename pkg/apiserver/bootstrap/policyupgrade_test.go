// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// TestUpgrade reconciles the policy of clusters that older releases have created, and checks the
// subjects of the binding system:public-info-viewer and the verbs that the aggregated roles have for
// a resource that an operator has added to the roles of the older release.
func TestUpgrade(t *testing.T) {
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"a"}}}
	kept := map[string]string{rbacv1.AutoUpdateAnnotationKey: "false", "example.com/kept": "yes"}
	group := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}}
	}
	role := func(name string, aggregated *rbacv1.AggregationRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: kept}, Rules: rules,
			AggregationRule: aggregated}
	}
	binding := func(name string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: kept},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: group("example")}
	}
	everyone := append(group("system:authenticated"), group("system:unauthenticated")...)
	for name, tc := range map[string]struct {
		have     []runtime.Object
		subjects []rbacv1.Subject // of system:public-info-viewer
		copied   bool             // the role admin is copied to system:aggregate-to-admin
	}{
		"new cluster":     {subjects: everyone},
		"old binding":     {have: []runtime.Object{binding(discovery)}, subjects: group("example")},
		"binding exists":  {have: []runtime.Object{binding(discovery), binding(publicInfo)}, subjects: group("example")},
		"old role":        {have: []runtime.Object{role("admin", nil)}, subjects: everyone, copied: true},
		"aggregated role": {have: []runtime.Object{role("admin", &rbacv1.AggregationRule{})}, subjects: everyone},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.have...)
			policy, err := DefaultPolicy(func(string) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // Reconcile must not change what it has created
				if err := policy.Reconcile(t.Context(), client); err != nil {
					t.Fatal(err)
				}
			}
			b, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), publicInfo, metav1.GetOptions{})
			if err != nil || !reflect.DeepEqual(b.Subjects, tc.subjects) || b.RoleRef.Name != publicInfo {
				t.Errorf("binding %+v, want subjects %v, error %v", b, tc.subjects, err)
			}
			copied := b.Annotations["example.com/kept"] == "yes"
			if want := len(tc.subjects) == 1; copied != want {
				t.Errorf("annotations %v, copied %v, want %v", b.Annotations, copied, want)
			}
			r, err := client.RbacV1().ClusterRoles().Get(t.Context(), "system:aggregate-to-admin", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if copied := reflect.DeepEqual(r.Rules, rules); copied != tc.copied {
				t.Errorf("rules %v, copied %v, want %v", r.Rules, copied, tc.copied)
			}
		})
	}
}
