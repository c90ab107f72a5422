// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// authority returns a CA certificate in PEM that is valid until end.
func authority(t *testing.T, name string, end time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: end.AddDate(-1, 0, 0), NotAfter: end, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestAuthenticationConfig checks that a server adds its CAs and names to those of other servers, and
// removes certificates that have expired.
func TestAuthenticationConfig(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	expired := authority(t, "expired", now.Add(-time.Hour))
	other, own := authority(t, "other", now.AddDate(1, 0, 0)), authority(t, "own", now.AddDate(1, 0, 0))
	data := map[string]string{"client-ca-file": own, "requestheader-allowed-names": `["a","b"]`}
	for _, tc := range []struct {
		name         string
		stored, want map[string]string
	}{
		{"no config map", nil, data},
		{"same", data, data},
		{"other server", map[string]string{"client-ca-file": expired + other, "requestheader-allowed-names": `["c","a"]`,
			"requestheader-client-ca-file": other},
			map[string]string{"client-ca-file": other + own, "requestheader-allowed-names": `["c","a","b"]`,
				"requestheader-client-ca-file": other}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			maps, ctx := client.CoreV1().ConfigMaps("kube-system"), t.Context()
			const name = "extension-apiserver-authentication"
			if tc.stored != nil {
				if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: tc.stored},
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second time changes nothing
				if err := AuthenticationConfig(ctx, client, data, now); err != nil {
					t.Fatal(err)
				}
				got, err := maps.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(tc.want, got.Data); d != "" {
					t.Errorf("config map (-want +got):\n%s", d)
				}
			}
		})
	}
	client := fake.NewClientset()
	bad := map[string]string{"client-ca-file": "no certificate"}
	for i, ok := range []bool{true, false} { // the first call creates the config map, the second combines its values
		if err := AuthenticationConfig(t.Context(), client, bad, now); (err == nil) != ok {
			t.Errorf("call %d: %v", i, err)
		}
	}
}
