// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestDefaultAccounts checks that a namespace gets its default account, also after the account was deleted,
// and that an account that another client created is kept. A terminating namespace must get no
// account.
func TestDefaultAccounts(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	create := func(name string, finalizers ...v1.FinalizerName) {
		t.Helper()
		ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NamespaceSpec{Finalizers: finalizers}}
		if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	account := func(namespace string, other types.UID) *v1.ServiceAccount {
		t.Helper()
		var got *v1.ServiceAccount
		controllertest.Eventually(t, "the account of "+namespace, func(ctx context.Context) (any, bool) {
			var err error
			got, err = s.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err, err == nil && got.UID != other
		})
		return got
	}
	remove := func(namespace, name string) {
		t.Helper()
		if err := s.Client.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// When the controller starts, there are a namespace without an account, a namespace with an
	// account that another client created, and a terminating namespace.
	create("before")
	create("taken")
	create("going", "example.com/hold")
	theirs, err := s.Client.CoreV1().ServiceAccounts("taken").Create(t.Context(), &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"of": "somebody"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Client.CoreV1().Namespaces().Delete(t.Context(), "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.RunAs(t, s, "service-account-controller", controller.Options{}, NewDefaultAccounts)

	account("before", "")
	create("later")
	first := account("later", "")
	remove("later", "default")
	account("later", first.UID)
	if got := account("taken", ""); got.UID != theirs.UID || got.Labels["of"] != "somebody" {
		t.Errorf("the existing account is %v", got)
	}
	if list, err := s.Client.CoreV1().ServiceAccounts("going").List(t.Context(),
		metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("a terminating namespace has %v, %v", list, err)
	}
	// An account with another name must not be touched.
	if _, err := s.Client.CoreV1().ServiceAccounts("later").Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove("later", "other")
	second := account("later", "")
	remove("later", "default")
	account("later", second.UID)
	list, err := s.Client.CoreV1().ServiceAccounts("later").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("accounts: %v, %v", list, err)
	}
}
