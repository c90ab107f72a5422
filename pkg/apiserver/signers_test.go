// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestTrustBundlesNeedAttest checks that only users with the right "attest" write the trust bundles
// of a signer, and that other users with the right to write bundles may change their owners.
func TestTrustBundlesNeedAttest(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	allowGroup(t, s, "writers", "writers", rbacv1.PolicyRule{
		Verbs: []string{"*"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"},
	})
	allowGroup(t, s, "signers", "signers", rbacv1.PolicyRule{
		Verbs: []string{"attest"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"},
		ResourceNames: []string{"example.com/s"},
	})
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	trust := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writer := clientFor(t, s.UserConfig(t, "bob", "writers")).CertificatesV1().ClusterTrustBundles()
	signer := clientFor(t, s.UserConfig(t, "alice", "writers", "signers")).CertificatesV1().ClusterTrustBundles()
	bundle := func(name, signer string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: trust}}
	}
	poll(t, "a bundle without a signer", func(ctx context.Context) bool {
		_, err := writer.Create(ctx, bundle("free", ""), metav1.CreateOptions{})
		return err == nil
	})
	if _, err := writer.Create(t.Context(), bundle("example.com:s:a", "example.com/s"),
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a bundle of a signer, without the right: %v", err)
	}
	poll(t, "a bundle of a signer", func(ctx context.Context) bool {
		_, err := signer.Create(ctx, bundle("example.com:s:a", "example.com/s"), metav1.CreateOptions{})
		return err == nil
	})
	patch := func(data string) error {
		_, err := writer.Patch(t.Context(), "example.com:s:a", types.MergePatchType, []byte(data), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"metadata":{"finalizers":["example.com/f"]}}`); err != nil {
		t.Errorf("its finalizers: %v", err)
	}
	if err := patch(`{"metadata":{"labels":{"a":"b"}}}`); !apierrors.IsForbidden(err) {
		t.Errorf("its labels: %v", err)
	}
}
