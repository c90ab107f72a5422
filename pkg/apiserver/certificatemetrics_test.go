// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/ptr"
)

// certificate returns a certificate in PEM that is valid for a time.
func certificate(t *testing.T, valid time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Unix(0, 0).Add(valid)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestCertificateMetrics checks which updates of signing requests count as requested and as honored
// durations.
func TestCertificateMetrics(t *testing.T) {
	hour := certificate(t, time.Hour)
	for name, tc := range map[string]struct {
		seconds            *int32
		signer             string
		was, is            []byte
		requested, honored float64
		label              string
	}{
		"exact":              {ptr.To[int32](3600), "kubernetes.io/a", nil, hour, 1, 1, "kubernetes.io/a"},
		"almost":             {ptr.To[int32](3600 + 479), "kubernetes.io/a", nil, hour, 1, 1, "kubernetes.io/a"},
		"dated back":         {ptr.To[int32](3600 - 300), "kubernetes.io/a", nil, hour, 1, 1, "kubernetes.io/a"},
		"too short":          {ptr.To[int32](4200), "kubernetes.io/a", nil, hour, 1, 0, "kubernetes.io/a"},
		"too long":           {ptr.To[int32](3000), "kubernetes.io/a", nil, hour, 1, 0, "kubernetes.io/a"},
		"another signer":     {ptr.To[int32](3600), "example.com/a", nil, hour, 1, 1, "other"},
		"no duration":        {nil, "kubernetes.io/a", nil, hour, 0, 0, "kubernetes.io/a"},
		"no certificate":     {ptr.To[int32](3600), "kubernetes.io/a", nil, nil, 0, 0, "kubernetes.io/a"},
		"issued before":      {ptr.To[int32](3600), "kubernetes.io/a", hour, hour, 0, 0, "kubernetes.io/a"},
		"broken certificate": {ptr.To[int32](3600), "kubernetes.io/a", nil, []byte("x"), 1, 0, "kubernetes.io/a"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newCertificateMetrics(prometheus.NewRegistry())
			old := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: tc.signer, ExpirationSeconds: tc.seconds}}
			old.Status.Certificate = tc.was
			r := old.DeepCopy()
			r.Status.Certificate = tc.is
			m.hooks().AfterUpdate(t.Context(), r, old)
			if n := testutil.ToFloat64(m.requested.WithLabelValues(tc.label)); n != tc.requested {
				t.Errorf("requested %v, want %v", n, tc.requested)
			}
			if n := testutil.ToFloat64(m.honored.WithLabelValues(tc.label)); n != tc.honored {
				t.Errorf("honored %v, want %v", n, tc.honored)
			}
		})
	}
}
