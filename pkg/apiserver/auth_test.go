// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func clientFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "robot",
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
}

func mustCreateAccount(t *testing.T, s *testserver.Server) {
	t.Helper()
	_, err := s.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnonymousAndForbidden(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	bob := clientFor(t, s.UserConfig(t, "bob", "people"))
	_, err := bob.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	want := `pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	nobody := clientFor(t, s.TokenConfig(""))
	_, err = nobody.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	want = `nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster scope`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := nobody.Discovery().ServerVersion(); err != nil {
		t.Errorf("/version is open to everybody: %v", err)
	}
	_, err = clientFor(t, s.TokenConfig("nonsense")).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong token must not pass as anonymous: %v", err)
	}
	// Impersonation needs a right for the impersonated user, which bob does not have.
	as := s.UserConfig(t, "bob")
	as.Impersonate = rest.ImpersonationConfig{UserName: "jane"}
	_, err = clientFor(t, as).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	want = `pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group ` +
		`"" in the namespace "default"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestRBACFollowsBindings(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	bob := clientFor(t, s.UserConfig(t, "bob"))
	_, err := s.Client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bob"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "bob may create config maps", func(context.Context) bool {
		_, err := bob.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		return err == nil
	})
	if _, err := bob.CoreV1().ConfigMaps("kube-system").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: %v", err)
	}
	review, err := bob.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps",
					Namespace: "default"}},
		}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		t.Errorf("review: %+v, %v", review, err)
	}
	if err := s.Client.RbacV1().RoleBindings("default").Delete(t.Context(), "bob", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "bob may no more", func(context.Context) bool {
		_, err := bob.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		return apierrors.IsForbidden(err)
	})
}

func TestNobodyGrantsWhatHeLacks(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	// The user eve must never get a right that she lacks, although the authorizer receives a role
	// and its binding at different times.
	_, err := s.Client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "role-writer"},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"create", "update"}, APIGroups: []string{rbacv1.GroupName},
				Resources: []string{"roles", "rolebindings"}},
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "eve"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "role-writer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eve := clientFor(t, s.UserConfig(t, "eve"))
	role := func(name string, resources ...string) error {
		_, err := eve.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: resources}},
		}, metav1.CreateOptions{})
		return err
	}
	poll(t, "eve may grant what she has", func(context.Context) bool { return role("pods", "pods") == nil })
	err = role("secrets", "pods", "secrets")
	want := "roles.rbac.authorization.k8s.io \"secrets\" is forbidden: user \"eve\" " +
		"(groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n" +
		`{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = eve.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "eve"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("binding cluster-admin: %v", err)
	}
	for _, tc := range []struct{ kind, name, want string }{
		{"ClusterRole", "nope", `rolebindings.rbac.authorization.k8s.io "nope" not found`},
		{"Nothing", "nope", `unsupported role reference kind: "Nothing"`},
		{"Role", "", `Name parameter required.`},
		{"Role", "a/b", `Name parameter invalid: "a/b": may not contain '/'`},
	} {
		_, err = eve.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "eve"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: tc.kind, Name: tc.name},
		}, metav1.CreateOptions{})
		if err == nil || err.Error() != tc.want {
			t.Errorf("binding what is not: %v, want %s", err, tc.want)
		}
	}
}

func TestServiceAccountTokens(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	p, err := s.Client.CoreV1().Pods("default").Create(t.Context(), pod("p", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := func(spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
		return s.Client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot",
			&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	}
	bound, err := token(
		authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: "p", UID: p.UID}})
	if err != nil {
		t.Fatal(err)
	}
	robot := clientFor(t, s.TokenConfig(bound.Status.Token))
	me, err := robot.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u := me.Status.UserInfo
	if u.Username != "system:serviceaccount:default:robot" || u.Extra["authentication.kubernetes.io/pod-name"][0] != "p" ||
		strings.Join(u.Groups, ",") != "system:serviceaccounts,system:serviceaccounts:default,system:authenticated" {
		t.Errorf("the token's user is %+v", u)
	}
	other, err := token(authenticationv1.TokenRequestSpec{Audiences: []string{"elsewhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t,
		s.TokenConfig(other.Status.Token)).Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token for another audience: %v", err)
	}
	review, err := s.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: other.Status.Token, Audiences: []string{"elsewhere"}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || len(review.Status.Audiences) != 1 {
		t.Errorf("review: %+v, %v", review, err)
	}
	// A token with the algorithm "none" must be rejected.
	_, claims, _ := strings.Cut(other.Status.Token, ".")
	review, err = s.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{
			Token: base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + claims},
	}, metav1.CreateOptions{})
	if err != nil || review.Status.Error != "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]" {
		t.Errorf("review of a token without a signature: %+v, %v", review, err)
	}
	if _, err := token(authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(60))}); err == nil ||
		!strings.Contains(err.Error(), "may not specify a duration less than 10 minutes") {
		t.Errorf("a short token: %v", err)
	}
	_, err = s.Client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot",
		&authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "earlier"}}, metav1.CreateOptions{})
	if !apierrors.IsConflict(err) ||
		!strings.Contains(err.Error(),
			"the UID in the token request (earlier) does not match the UID of the service account (") {
		t.Errorf("a token of an account that is gone: %v", err)
	}
	// Deleting a pod invalidates its tokens.
	second, err := token(
		authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: "p", UID: p.UID}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Client.CoreV1().Pods("default").Delete(t.Context(), "p",
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t,
		s.TokenConfig(second.Status.Token)).Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of a pod that is gone: %v", err)
	}
}

func TestNodesSeeTheirOwn(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	node := clientFor(t, s.UserConfig(t, "system:node:n1", "system:nodes"))
	if _, err := node.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
		metav1.CreateOptions{})
	want := `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, name := range []string{"mine", "other"} {
		if _, err := s.Client.CoreV1().Secrets("default").Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := pod("p", "n1")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mine"}}}}
	if _, err := s.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "a secret of its pod", func(ctx context.Context) bool {
		_, err := node.CoreV1().Secrets("default").Get(ctx, "mine", metav1.GetOptions{})
		return err == nil
	})
	_, err = node.CoreV1().Secrets("default").Get(t.Context(), "other", metav1.GetOptions{})
	want = `secrets "other" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group ` +
		`"" in the namespace "default": node: no relationship found between node 'n1' and this object`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = node.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	want = `pods is forbidden: User "system:node:n1" cannot list resource "pods" in API group "" at the ` +
		`cluster scope: node: can only list/watch pods with spec.nodeName field selector`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	list, err := node.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("its own pods: %v, %v", list, err)
	}
	lease := func(name string) error {
		_, err := node.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := lease("n1"); err != nil {
		t.Error(err)
	}
	if err := lease("n2"); !apierrors.IsForbidden(err) {
		t.Errorf("another's lease: %v", err)
	}
}
