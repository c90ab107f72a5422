// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func proxySubject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:kube-proxy:" + node, Organization: []string{"keelson:proxies"}}
}

// TestOwnProxy checks that a node gets client certificates only for its own proxy.
func TestOwnProxy(t *testing.T) {
	type request struct {
		csr certificatesv1.CertificateSigningRequestSpec
		req x509.CertificateRequest
	}
	for name, change := range map[string]func(*request){
		"of another node":         func(r *request) { r.req.Subject = proxySubject("n2") },
		"of no node":              func(r *request) { r.req.Subject.CommonName = "system:kube-proxy" },
		"an administrator's":      func(r *request) { r.req.Subject.Organization = []string{"system:masters"} },
		"with another group":      func(r *request) { r.req.Subject.Organization = []string{"keelson:proxies", "a"} },
		"without a group":         func(r *request) { r.req.Subject.Organization = nil },
		"by no node":              func(r *request) { r.csr.Username = "n1" },
		"by a user with the name": func(r *request) { r.csr.Groups = []string{"system:authenticated"} },
		"of another signer":       func(r *request) { r.csr.SignerName = certificatesv1.KubeletServingSignerName },
		"for a server":            func(r *request) { r.csr.Usages = []certificatesv1.KeyUsage{sign, server} },
		"for client and server":   func(r *request) { r.csr.Usages = []certificatesv1.KeyUsage{sign, client, server} },
		"with a DNS name":         func(r *request) { r.req.DNSNames = []string{"n1"} },
		"with an address":         func(r *request) { r.req.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} },
		"with a mail address":     func(r *request) { r.req.EmailAddresses = []string{"a@b"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := request{
				csr: certificatesv1.CertificateSigningRequestSpec{
					SignerName: certificatesv1.KubeAPIServerClientSignerName, Username: "system:node:n1",
					Groups: []string{"system:nodes", "system:authenticated"}, Usages: []certificatesv1.KeyUsage{sign, client},
				},
				req: x509.CertificateRequest{Subject: proxySubject("n1")},
			}
			if !ownProxy(&certificatesv1.CertificateSigningRequest{Spec: r.csr}, &r.req) {
				t.Fatal("the unchanged request is not for the node's own proxy")
			}
			change(&r)
			if ownProxy(&certificatesv1.CertificateSigningRequest{Spec: r.csr}, &r.req) {
				t.Error("the request is for the node's own proxy")
			}
		})
	}
}

// TestProxyJoins checks that the request of a node for its proxy's certificate is approved and
// signed as soon as the node exists, and that requests for other proxies stay undecided.
func TestProxyJoins(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	cert, key := authority(t, 48*time.Hour)
	o := controller.Options{SigningCert: cert, SigningKey: key, SigningDuration: time.Hour, ApproveProxies: true}
	controllertest.Run(t, s, o, NewApproving, NewSigning)
	rc := rest.CopyConfig(s.Config)
	rc.Impersonate = rest.ImpersonationConfig{UserName: "system:node:n1",
		Groups: []string{"system:nodes", "system:authenticated"}}
	node, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(proxy string) {
		t.Helper()
		_, err := node.CertificatesV1().CertificateSigningRequests().Create(t.Context(),
			&certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: proxy},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					Request:    newRequest(t, &x509.CertificateRequest{Subject: proxySubject(proxy)}),
					SignerName: certificatesv1.KubeAPIServerClientSignerName,
					Usages:     []certificatesv1.KeyUsage{sign, client},
				},
			}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask("n2")
	ask("n1")
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	requests := s.Client.CertificatesV1().CertificateSigningRequests()
	controllertest.Eventually(t, "a certificate", func(ctx context.Context) (any, bool) {
		got, err := requests.Get(ctx, "n1", metav1.GetOptions{})
		return got, err == nil && len(got.Status.Certificate) > 0
	})
	if got, err := requests.Get(t.Context(), "n2", metav1.GetOptions{}); err != nil || decided(got) {
		t.Errorf("request for the proxy of n2: %v, %v", got, err)
	}
}
