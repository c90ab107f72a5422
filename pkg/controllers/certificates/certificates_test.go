// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

const (
	sign    = certificatesv1.UsageDigitalSignature
	encrypt = certificatesv1.UsageKeyEncipherment
	client  = certificatesv1.UsageClientAuth
	server  = certificatesv1.UsageServerAuth
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRequest(t *testing.T, template *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func nodeSubject() pkix.Name {
	return pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
}

func TestCheck(t *testing.T) {
	const (
		kubelet = certificatesv1.KubeAPIServerClientKubeletSignerName
		serving = certificatesv1.KubeletServingSignerName
		anyone  = certificatesv1.KubeAPIServerClientSignerName
	)
	type usages = []certificatesv1.KeyUsage
	for _, tc := range []struct {
		name, signer string
		req          x509.CertificateRequest
		usages       usages
		foreign      bool
		wrong        string
	}{
		{name: "client", signer: kubelet, req: x509.CertificateRequest{Subject: nodeSubject()}, usages: usages{sign, client}},
		{name: "client with RSA", signer: kubelet, req: x509.CertificateRequest{Subject: nodeSubject()},
			usages: usages{encrypt, sign, client}},
		{name: "client that serves", signer: kubelet, req: x509.CertificateRequest{Subject: nodeSubject()},
			usages: usages{sign, server}, wrong: "usages did not match [client auth digital signature key encipherment]"},
		{name: "client of another group", signer: kubelet,
			req: x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1",
				Organization: []string{"system:masters"}}}, usages: usages{sign, client},
			wrong: "subject organization is not system:nodes"},
		{name: "client of two groups", signer: kubelet,
			req: x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1",
				Organization: []string{"system:nodes", "system:masters"}}}, usages: usages{sign, client},
			wrong: "subject organization is not system:nodes"},
		{name: "client that is no node", signer: kubelet,
			req: x509.CertificateRequest{
				Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:nodes"}}},
			usages: usages{sign, client}, wrong: "subject common name does not begin with system:node:"},
		{name: "client with a name", signer: kubelet,
			req:    x509.CertificateRequest{Subject: nodeSubject(), DNSNames: []string{"n1"}},
			usages: usages{sign, client}, wrong: "DNS subjectAltNames are not allowed"},
		{name: "client with an address", signer: kubelet,
			req:    x509.CertificateRequest{Subject: nodeSubject(), IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
			usages: usages{sign, client}, wrong: "IP subjectAltNames are not allowed"},
		{name: "server", signer: serving,
			req: x509.CertificateRequest{Subject: nodeSubject(), DNSNames: []string{"n1"}}, usages: usages{server, sign}},
		{name: "server without a name", signer: serving, req: x509.CertificateRequest{Subject: nodeSubject()},
			usages: usages{server, sign}, wrong: "DNS or IP subjectAltName is required"},
		{name: "server with a URI", signer: serving,
			req: x509.CertificateRequest{Subject: nodeSubject(), DNSNames: []string{"n1"},
				URIs: []*url.URL{{Scheme: "spiffe"}}}, usages: usages{server, sign}, wrong: "URI subjectAltNames are not allowed"},
		{name: "anyone", signer: anyone, usages: usages{client}},
		{name: "anyone who serves", signer: anyone, usages: usages{client, server},
			wrong: "invalid usage for client certificate: server auth"},
		{name: "anyone who is no client", signer: anyone, usages: usages{sign},
			wrong: "missing required usage for client certificate: client auth"},
		{name: "legacy", signer: legacyUnknown, usages: usages{server, client}},
		{name: "of others", signer: "example.com/signer", usages: usages{server}, foreign: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known, err := check(&certificatesv1.CertificateSigningRequest{
				Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: tc.signer, Usages: tc.usages}}, &tc.req)
			if known == tc.foreign {
				t.Errorf("known: %v", known)
			}
			if err == nil && tc.wrong != "" || err != nil && err.Error() != tc.wrong {
				t.Errorf("%v, want %q", err, tc.wrong)
			}
		})
	}
}

func TestStale(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, tc := range []struct {
		name        string
		created     time.Duration
		condition   certificatesv1.RequestConditionType
		conditioned time.Duration
		issued      bool
		want        bool
	}{
		{name: "new", created: time.Minute},
		{name: "waits for a day", created: 25 * time.Hour, want: true},
		{name: "denied just now", created: 30 * time.Hour, condition: certificatesv1.CertificateDenied,
			conditioned: time.Minute},
		{name: "denied long ago", condition: certificatesv1.CertificateDenied, conditioned: 2 * time.Hour, want: true},
		{name: "failed long ago", condition: certificatesv1.CertificateFailed, conditioned: 2 * time.Hour, want: true},
		{name: "issued just now", condition: certificatesv1.CertificateApproved, conditioned: time.Minute, issued: true},
		{name: "issued long ago", condition: certificatesv1.CertificateApproved, conditioned: 2 * time.Hour,
			issued: true, want: true},
		{name: "approved, not issued", condition: certificatesv1.CertificateApproved, conditioned: 2 * time.Hour},
		{name: "approved a day ago, not issued", condition: certificatesv1.CertificateApproved,
			conditioned: 25 * time.Hour, want: true},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(tc.created)}}
		if tc.condition != "" {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				{Type: tc.condition, Status: v1.ConditionTrue, LastUpdateTime: ago(tc.conditioned)}}
		}
		if tc.issued {
			csr.Status.Certificate = []byte("certificate")
		}
		if got := stale(csr, now); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// authority creates a certificate authority that is valid for the duration life.
func authority(t *testing.T, life time.Duration) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	now := time.Now() // use the real time, because x509 verifies certificates with it
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(life),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// TestIssuers checks that a signer with its own certificate authority uses that authority, and that
// other signers sign nothing if there is no default authority.
func TestIssuers(t *testing.T) {
	cert, key := authority(t, time.Hour)
	s := testserver.Start(t, testserver.Options{})
	for name, tc := range map[string]struct {
		o    controller.Options
		want [2]bool // whether requests to the signers kubelet-serving and legacy-unknown are signed
	}{
		"common": {controller.Options{SigningCert: cert, SigningKey: key}, [2]bool{true, true}},
		"one": {controller.Options{
			Signers: map[string]controller.KeyPair{certificatesv1.KubeletServingSignerName: {Cert: cert,
				Key: key}}}, [2]bool{true, false}},
	} {
		made, err := NewSigning(controller.Deps{Informers: controller.NewInformers(s.Client, 0), Options: tc.o})
		if err != nil {
			t.Fatal(err)
		}
		c := made.(*signing)
		var got [2]bool
		_, got[0] = c.pairFor(certificatesv1.KubeletServingSignerName)
		_, got[1] = c.pairFor(legacyUnknown)
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestKubeletJoins checks that the request of a joining node is approved and signed if the group of
// its bootstrap user has the right to get such a certificate. A request of a user without this
// right stays undecided.
func TestKubeletJoins(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	cert, key := authority(t, 48*time.Hour)
	bind := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "join"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers"}},
	}
	bindCreate := bind.DeepCopy()
	bindCreate.Name, bindCreate.RoleRef.Name = "ask", "system:node-bootstrapper"
	bindCreate.Subjects = append(bindCreate.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group",
		Name: "strangers"})
	for _, b := range []*rbacv1.ClusterRoleBinding{bind, bindCreate} {
		if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o := controller.Options{SigningCert: cert, SigningKey: key, SigningDuration: 365 * 24 * time.Hour}
	controllertest.Run(t, s, o, NewApproving, NewSigning)

	ask := func(name, group string, usages ...certificatesv1.KeyUsage) {
		t.Helper()
		rc := rest.CopyConfig(s.Config)
		rc.Impersonate = rest.ImpersonationConfig{UserName: "bootstrap", Groups: []string{group, "system:authenticated"}}
		c, err := kubernetes.NewForConfig(rc)
		if err != nil {
			t.Fatal(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: newRequest(t, &x509.CertificateRequest{Subject: nodeSubject()}), Usages: usages,
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, ExpirationSeconds: ptr.To[int32](3600),
			},
		}
		controllertest.Eventually(t, "the right to ask", func(ctx context.Context) (any, bool) {
			_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
			return err, err == nil
		})
	}
	ask("stranger", "strangers", sign, client)
	ask("wrong", "system:bootstrappers", sign, server)
	ask("joins", "system:bootstrappers", sign, client)
	var issued *certificatesv1.CertificateSigningRequest
	controllertest.Eventually(t, "a certificate", func(ctx context.Context) (any, bool) {
		got, err := s.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, "joins", metav1.GetOptions{})
		issued = got
		return got, err == nil && len(got.Status.Certificate) > 0
	})
	verify(t, issued.Status.Certificate, cert, time.Hour)
	for _, name := range []string{"stranger", "wrong"} {
		got, err := s.Client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || decided(got) {
			t.Errorf("%s: %v, %v", name, got.Status, err)
		}
	}

	t.Run("a person approves what breaks the signer's rules", func(t *testing.T) {
		csr, err := s.Client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "wrong", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "Person"}}
		if _, err := s.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), "wrong",
			csr, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "it fails", func(ctx context.Context) (any, bool) {
			got, err := s.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, "wrong", metav1.GetOptions{})
			return got, err == nil && is(got, certificatesv1.CertificateFailed) && len(got.Status.Certificate) == 0
		})
	})
}

func verify(t *testing.T, issued, ca []byte, life time.Duration) {
	t.Helper()
	block, _ := pem.Decode(issued)
	if block == nil {
		t.Fatalf("no PEM: %q", issued)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if c.Subject.CommonName != "system:node:n1" || c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("subject %v, authority %v, usage %v", c.Subject, c.IsCA, c.KeyUsage)
	}
	if got := c.NotAfter.Sub(c.NotBefore); got != life+backdate {
		t.Errorf("valid for %v", got)
	}
}
