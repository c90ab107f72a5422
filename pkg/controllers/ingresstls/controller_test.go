// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingresstls

import (
	"context"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// account grants the controller's service account the permissions that it has in clusters.
func account(t *testing.T, s *testserver.Server) {
	t.Helper()
	rule := func(groups, resources, verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs, ResourceNames: names}
	}
	networking, rbac := []string{networkingv1.GroupName}, []string{rbacv1.GroupName}
	grants := []string{"roles", "rolebindings"}
	if _, err := s.Client.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "it"}, Rules: []rbacv1.PolicyRule{
			rule(networking, []string{"ingresses", "ingressclasses"}, []string{"get", "list", "watch"}),
			rule(rbac, grants, []string{"get", "list", "watch", "create"}),
			rule(rbac, grants, []string{"update", "patch", "delete", "escalate", "bind"}, roleName),
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "it"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "it"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system",
			Name: "ingress-tls-controller"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestGrants checks that the proxy's service account may read the Secrets that Ingresses name, and
// only as long as Ingresses name them.
func TestGrants(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	account(t, s)
	proxy := types.NamespacedName{Namespace: "kube-system", Name: "ingress"}
	controllertest.RunAs(t, s, "ingress-tls-controller", controller.Options{Workers: 1, IngressAccount: proxy}, New)
	ctx := t.Context()
	for name, who := range map[string]string{"keelson": service.IngressController, "other": "example.com/other"} {
		if _, err := s.Client.NetworkingV1().IngressClasses().Create(ctx, &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: who},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ingresses := s.Client.NetworkingV1().Ingresses("default")
	for name, class := range map[string]string{"one": "keelson", "two": "keelson", "three": "other"} {
		if _, err := ingresses.Create(ctx, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: networkingv1.IngressSpec{
				IngressClassName: ptr.To(class), TLS: []networkingv1.IngressTLS{{SecretName: "tls-" + name}},
				DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
					Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	granted := func(want ...string) func(context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			role, err := s.Client.RbacV1().Roles("default").Get(ctx, roleName, metav1.GetOptions{})
			if err != nil || len(role.Rules) != 1 {
				return err, false
			}
			binding, err := s.Client.RbacV1().RoleBindings("default").Get(ctx, roleName, metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: proxy.Namespace, Name: proxy.Name}
			return role.Rules, slices.Equal(role.Rules[0].ResourceNames, want) &&
				slices.Equal(binding.Subjects, []rbacv1.Subject{subject})
		}
	}
	controllertest.Eventually(t, "both of the class", granted("tls-one", "tls-two"))
	if err := ingresses.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "what is left", granted("tls-two"))
	// Another client changes the Role. The controller must correct the change.
	role, err := s.Client.RbacV1().Roles("default").Get(ctx, roleName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules[0].ResourceNames = nil
	if _, err := s.Client.RbacV1().Roles("default").Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it is put right", granted("tls-two"))
	if err := ingresses.Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "nothing", func(ctx context.Context) (any, bool) {
		_, err := s.Client.RbacV1().Roles("default").Get(ctx, roleName, metav1.GetOptions{})
		_, bindingErr := s.Client.RbacV1().RoleBindings("default").Get(ctx, roleName, metav1.GetOptions{})
		return []error{err, bindingErr}, apierrors.IsNotFound(err) && apierrors.IsNotFound(bindingErr)
	})
}
