// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestPodRequestCleaning checks that requests are deleted after 15 minutes, and that a request with
// the name of an old one is kept.
func TestPodRequestCleaning(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	requests := s.Client.CertificatesV1().PodCertificateRequests("default")
	create := func(name string) *certificatesv1.PodCertificateRequest {
		r, err := requests.Create(t.Context(), &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: "example.com/s", PodName: "p", PodUID: "u", ServiceAccountName: "a", ServiceAccountUID: "u",
				NodeName: "n1", NodeUID: "u", MaxExpirationSeconds: ptr.To[int32](3600), StubPKCS10Request: stub,
			}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old, replaced := create("old"), create("replaced")
	informers, fake := controller.NewInformers(s.Client, 0), clocktesting.NewFakeClock(old.CreationTimestamp.Time)
	made, err := NewPodRequestCleaning(controller.Deps{Informers: informers, Client: s.Client, Clock: fake})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*certificatesv1.PodCertificateRequest{old, replaced} {
		if err := informers.Certificates().V1().PodCertificateRequests().Informer().GetStore().Add(r); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func() {
		t.Helper()
		if err := made.(*podRequestCleaning).sweep(t.Context()); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	if err := requests.Delete(t.Context(), "replaced", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create("replaced")
	fake.Step(podRequestKept - time.Second)
	sweep()
	if _, err := requests.Get(t.Context(), "old", metav1.GetOptions{}); err != nil {
		t.Errorf("before its time: %v", err)
	}
	fake.Step(time.Second)
	sweep()
	if _, err := requests.Get(t.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its time: %v", err)
	}
	if _, err := requests.Get(t.Context(), "replaced", metav1.GetOptions{}); err != nil {
		t.Errorf("a new request with the name of an old one: %v", err)
	}
}
