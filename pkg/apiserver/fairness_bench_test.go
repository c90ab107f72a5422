// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// BenchmarkFairness reads a small object as an ordinary user, with and without priority and
// fairness.
func BenchmarkFairness(b *testing.B) {
	for name, on := range map[string]bool{"queues": true, "limits": false} {
		b.Run(name, func(b *testing.B) {
			s := testserver.Start(b, testserver.Options{Configure: func(c *config.Config) { c.PriorityAndFairness = on }})
			if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "bob"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"}},
			}, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			bob := kubernetes.NewForConfigOrDie(s.UserConfig(b, "bob")).CoreV1().Namespaces()
			for {
				if _, err := bob.Get(b.Context(), "default", metav1.GetOptions{}); err == nil {
					break
				}
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := bob.Get(b.Context(), "default", metav1.GetOptions{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
