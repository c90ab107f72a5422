// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// authority returns the certificate of a new authority.
func authority(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestBundle checks that the controller publishes the current certificates, deletes the bundle of
// older ones, and leaves the bundles of others.
func TestBundle(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	bundles, current, older := s.Client.CertificatesV1().ClusterTrustBundles(), authority(t), authority(t)
	for name, signer := range map[string]string{nameOf(older): signer, "other": ""} {
		_, err := bundles.Create(t.Context(), &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(older)}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	controllertest.RunAs(t, s, "kube-apiserver-serving-clustertrustbundle-publisher",
		controller.Options{RootCA: current}, NewBundle)
	controllertest.Eventually(t, "only the current bundle", func(ctx context.Context) (any, bool) {
		list, err := bundles.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			return list, false
		}
		first, second := list.Items[0], list.Items[1]
		return list, first.Name == nameOf(current) && first.Spec.TrustBundle == string(current) && second.Name == "other"
	})
}
