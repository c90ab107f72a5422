// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// world is an API server with the controller of token Secrets.
type world struct {
	*testing.T
	*testserver.Server
}

func start(t *testing.T, s *testserver.Server, o controller.Options) world {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(s.Dir, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	o.TokenKey = key
	controllertest.Run(t, s, o, NewTokens)
	return world{t, s}
}

func (w world) account(name string) *v1.ServiceAccount {
	w.Helper()
	sa, err := w.Client.CoreV1().ServiceAccounts("default").Create(w.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return sa
}

func (w world) create(name string, kind v1.SecretType, annotations map[string]string,
	data map[string][]byte) *v1.Secret {
	w.Helper()
	s, err := w.Client.CoreV1().Secrets("default").Create(w.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Type: kind, Data: data,
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w world) filled(name string) *v1.Secret {
	w.Helper()
	var got *v1.Secret
	controllertest.Eventually(w.T, name+" is filled", func(ctx context.Context) (any, bool) {
		var err error
		got, err = w.Client.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
		return got, err == nil && len(got.Data[v1.ServiceAccountTokenKey]) > 0 &&
			string(got.Data[v1.ServiceAccountRootCAKey]) == "authority"
	})
	return got
}

func (w world) gone(name string) {
	w.Helper()
	controllertest.Eventually(w.T, name+" is gone", func(ctx context.Context) (any, bool) {
		got, err := w.Client.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
		return got, apierrors.IsNotFound(err)
	})
}

func of(sa *v1.ServiceAccount) map[string]string {
	return map[string]string{v1.ServiceAccountNameKey: sa.Name, v1.ServiceAccountUIDKey: string(sa.UID)}
}

// TestTokens checks that a Secret gets a token that authenticates its service account, and that the
// Secret is deleted when the account is deleted.
func TestTokens(t *testing.T) {
	w := start(t, testserver.Start(t, testserver.Options{}), controller.Options{RootCA: []byte("authority")})
	robot, other := w.account("robot"), w.account("other")
	w.create("plain", v1.SecretTypeOpaque, of(robot), nil)
	w.create("asks", v1.SecretTypeServiceAccountToken, map[string]string{v1.ServiceAccountNameKey: "robot"}, nil)
	w.create("kept", v1.SecretTypeServiceAccountToken, of(other), nil)

	s := w.filled("asks")
	if s.Annotations[v1.ServiceAccountUIDKey] != string(robot.UID) ||
		string(s.Data[v1.ServiceAccountNamespaceKey]) != "default" {
		t.Errorf("annotations %v, data of %d entries", s.Annotations, len(s.Data))
	}
	review, err := w.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(s.Data[v1.ServiceAccountTokenKey])},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated ||
		review.Status.User.Username != "system:serviceaccount:default:robot" || review.Status.User.UID != string(robot.UID) {
		t.Errorf("the token is %+v, %v", review, err)
	}
	// Data that was removed is added again, and the existing token does not change.
	token := string(s.Data[v1.ServiceAccountTokenKey])
	// Use a merge patch, because an update might conflict with the API server, which records the
	// use of the token.
	patch := []byte(`{"data":{"` + v1.ServiceAccountRootCAKey + `":null}}`)
	if _, err := w.Client.CoreV1().Secrets("default").Patch(t.Context(), "asks", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := string(w.filled("asks").Data[v1.ServiceAccountTokenKey]); got != token {
		t.Error("there is another token")
	}

	w.filled("kept")
	if err := w.Client.CoreV1().ServiceAccounts("default").Delete(t.Context(), "robot",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone("asks")
	// A Secret for an earlier account is deleted, although another account has the same name now.
	again := w.account("robot")
	w.create("old", v1.SecretTypeServiceAccountToken, of(robot), nil)
	w.gone("old")
	w.create("new", v1.SecretTypeServiceAccountToken, of(again), nil)
	w.filled("new")
	for _, name := range []string{"plain", "kept"} {
		if _, err := w.Client.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTokenKey checks that a key that cannot be used is reported when the controller is created.
func TestTokenKey(t *testing.T) {
	for name, key := range map[string]string{"none": "",
		"no key": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if _, err := NewTokens(controller.Deps{Options: controller.Options{TokenKey: []byte(key)}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
