// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	certificatesv1 "k8s.io/api/certificates/v1"
	certutil "k8s.io/client-go/util/cert"

	"keelson.dev/apiserver/resource"
)

// certificateMetrics are Kubernetes' metrics of the signing requests that ask for a duration.
type certificateMetrics struct{ requested, honored *prometheus.CounterVec }

// newCertificateMetrics registers the metrics.
func newCertificateMetrics(r prometheus.Registerer) *certificateMetrics {
	auto, labels := promauto.With(r), []string{"signerName"}
	return &certificateMetrics{
		requested: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_certificates_registry_csr_requested_duration_total",
			Help: "[ALPHA] Total number of issued CSRs with a requested duration, sliced by signer (only kubernetes.io " +
				"signer names are specifically identified)",
		}, labels),
		honored: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_certificates_registry_csr_honored_duration_total",
			Help: "[ALPHA] Total number of issued CSRs with a requested duration that was honored, sliced by signer " +
				"(only kubernetes.io signer names are specifically identified)",
		}, labels),
	}
}

// hooks returns the hooks that count signing requests.
func (m *certificateMetrics) hooks() resource.Hooks[*certificatesv1.CertificateSigningRequest] {
	return resource.Hooks[*certificatesv1.CertificateSigningRequest]{
		AfterUpdate: func(_ context.Context, r, old *certificatesv1.CertificateSigningRequest) { m.count(r, old) },
	}
}

// count counts the signing request r if the update from old to r issued its certificate.
func (m *certificateMetrics) count(r, old *certificatesv1.CertificateSigningRequest) {
	seconds := old.Spec.ExpirationSeconds
	if seconds == nil || len(old.Status.Certificate) > 0 || len(r.Status.Certificate) == 0 {
		return
	}
	signer := old.Spec.SignerName
	if !strings.HasPrefix(signer, "kubernetes.io/") {
		signer = "other"
	}
	m.requested.WithLabelValues(signer).Inc()
	certs, err := certutil.ParseCertsPEM(r.Status.Certificate)
	if err != nil {
		return // cannot happen, because a certificate is validated before it is stored
	}
	if honors(time.Duration(*seconds)*time.Second, certs[0].NotAfter.Sub(certs[0].NotBefore)) {
		m.honored.WithLabelValues(signer).Inc()
	}
}

// honors reports whether a certificate that is valid for the duration got honors a request for the
// duration want. Signers date short-lived certificates back by 5 minutes, and may round by 5 %.
func honors(want, got time.Duration) bool {
	return (want - got).Abs() < 5*time.Minute+want/20
}
