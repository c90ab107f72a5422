// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/ecdsa"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// secretToken returns the signed token of a service account's secret.
func secretToken(t *testing.T, s *testserver.Server, account *corev1.ServiceAccount, secret string) string {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(s.Dir, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("key %T", parsed)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "kubernetes.io/serviceaccount/"
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		prefix + "namespace": account.Namespace, prefix + "secret.name": secret,
		prefix + "service-account.name": account.Name, prefix + "service-account.uid": string(account.UID),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestTokensInSecrets checks that the use of tokens in secrets is recorded, and that tokens marked
// invalid are rejected.
func TestTokensInSecrets(t *testing.T) {
	t.Parallel() // slow: results of tokens are cached for 10 s
	s := testserver.Start(t, testserver.Options{})
	api, ctx := s.Client.CoreV1(), t.Context()
	account, err := api.ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := secretToken(t, s, account, "robot-token")
	if _, err := api.Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot-token",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot",
				corev1.ServiceAccountUIDKey: string(account.UID)}},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	robot := s.TokenConfig(token)
	// The token is authenticated, but has no rights.
	if resp, body := answerTo(t, robot, "/api/v1/nodes"); resp.StatusCode != http.StatusForbidden ||
		!strings.Contains(body, `User \"system:serviceaccount:default:robot\" cannot list resource`) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	secret, err := api.Secrets("default").Get(ctx, "robot-token", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if day, err := time.Parse(time.DateOnly,
		secret.Labels["kubernetes.io/legacy-token-last-used"]); err != nil || time.Since(day) > 48*time.Hour {
		t.Errorf("labels %v", secret.Labels)
	}
	tracking, err := api.ConfigMaps("kube-system").Get(ctx,
		"kube-apiserver-legacy-service-account-token-tracking", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.DateOnly, tracking.Data["since"]); err != nil {
		t.Errorf("tracked since %v", tracking.Data)
	}
	if _, err := api.Secrets("default").Patch(ctx, "robot-token", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "a token that is marked invalid is refused", func(context.Context) bool {
		resp, _ := answerTo(t, robot, "/api/v1/nodes")
		return resp.StatusCode == http.StatusUnauthorized
	})
}
