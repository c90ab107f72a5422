// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestImpersonation checks that impersonation needs a right for each attribute (name, groups, UID
// and extra), and that the request then has these attributes.
func TestImpersonation(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	may := map[string][]rbacv1.PolicyRule{
		"names": {{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}}},
		"all": {
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users", "groups"}},
			{Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"},
				Resources: []string{"uids"}, ResourceNames: []string{"0123"}},
			{Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"},
				Resources: []string{"userextras/scopes"}, ResourceNames: []string{"view"}},
		},
	}
	for name, rules := range may {
		if _, err := s.Client.RbacV1().ClusterRoles().Create(t.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	as := func(ctx context.Context, by string, who rest.ImpersonationConfig) (authenticationv1.UserInfo, error) {
		cfg := s.UserConfig(t, by)
		cfg.Impersonate = who
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return review.Status.UserInfo, nil
	}
	jane := rest.ImpersonationConfig{UserName: "jane", UID: "0123", Groups: []string{"devs"},
		Extra: map[string][]string{"scopes": {"view"}}}
	for by := range may {
		poll(t, "rights of "+by, func(ctx context.Context) bool {
			_, err := as(ctx, by, rest.ImpersonationConfig{UserName: "jane"})
			return err == nil
		})
	}
	poll(t, "all rights", func(ctx context.Context) bool {
		_, err := as(ctx, "all", jane)
		return err == nil
	})
	got, err := as(t.Context(), "all", jane)
	if err != nil || got.Username != "jane" || got.UID != "0123" ||
		!slices.Equal(got.Groups, []string{"devs", "system:authenticated"}) ||
		len(got.Extra) != 1 || !slices.Equal(got.Extra["scopes"], authenticationv1.ExtraValue{"view"}) {
		t.Errorf("is %+v, %v", got, err)
	}
	for name, test := range map[string]struct {
		by  string
		who rest.ImpersonationConfig
	}{
		"uid without a right":   {"names", rest.ImpersonationConfig{UserName: "jane", UID: "0123"}},
		"group without a right": {"names", rest.ImpersonationConfig{UserName: "jane", Groups: []string{"devs"}}},
		"extra without a right": {"names",
			rest.ImpersonationConfig{UserName: "jane", Extra: map[string][]string{"scopes": {"view"}}}},
		"another uid": {"all", rest.ImpersonationConfig{UserName: "jane", UID: "0124"}},
		"another value of an extra": {"all",
			rest.ImpersonationConfig{UserName: "jane", Extra: map[string][]string{"scopes": {"view", "edit"}}}},
		"another extra": {"all",
			rest.ImpersonationConfig{UserName: "jane", Extra: map[string][]string{"scope": {"view"}}}},
		"a service account as no user": {"all", rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default"}},
	} {
		if got, err := as(t.Context(), test.by, test.who); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
