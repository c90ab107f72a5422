// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// certificatePod returns a pod that mounts a certificate of the signer example.com/s.
func certificatePod(name, node string) *corev1.Pod {
	p := pod(name, node)
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/s", KeyType: "ED25519", KeyPath: "k"},
		}}},
	}}}
	return p
}

// TestNodesRequestCertificates checks that a node can request certificates for its own pods only,
// from the signers that they mount, and can read only its own requests.
func TestNodesRequestCertificates(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	account, err := s.Client.CoreV1().ServiceAccounts("default").Get(t.Context(), "robot", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	for _, name := range []string{"n1", "n2"} {
		n, err := s.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = n.UID
	}
	for name, on := range map[string]string{"p": "n1", "q": "n2"} {
		p, err := s.Client.CoreV1().Pods("default").Create(t.Context(), certificatePod(name, on), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = p.UID
	}
	stub, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{},
		ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	valid := certificatesv1.PodCertificateRequestSpec{
		SignerName: "example.com/s", PodName: "p", PodUID: uids["p"], ServiceAccountName: "robot",
		ServiceAccountUID: account.UID, NodeName: "n1", NodeUID: uids["n1"],
		MaxExpirationSeconds: ptr.To[int32](3600), StubPKCS10Request: stub,
	}
	node := clientFor(t, s.UserConfig(t, "system:node:n1", "system:nodes")).CertificatesV1().
		PodCertificateRequests("default")
	create := func(ctx context.Context, name string, spec certificatesv1.PodCertificateRequestSpec) error {
		_, err := node.Create(ctx, &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: spec}, metav1.CreateOptions{})
		return err
	}
	if err := create(t.Context(), "valid", valid); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*certificatesv1.PodCertificateRequestSpec){
		`PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"`: func(
			s *certificatesv1.PodCertificateRequestSpec) {
			s.NodeName, s.NodeUID, s.PodName, s.PodUID = "n2", uids["n2"], "q", uids["q"]
		},
		`names node UID "x", inconsistent with the running node`: func(s *certificatesv1.PodCertificateRequestSpec) {
			s.NodeUID = "x"
		},
		`while retrieving pod "default/gone" named in the PodCertificateRequest: pod "gone" not found`: func(
			s *certificatesv1.PodCertificateRequestSpec) {
			s.PodName = "gone"
		},
		`pod "default/q" is not running on node "n1" named in the PodCertificateRequest`: func(
			s *certificatesv1.PodCertificateRequestSpec) {
			s.PodName, s.PodUID = "q", uids["q"]
		},
		`contains pod UID ("x") which differs from running pod`: func(s *certificatesv1.PodCertificateRequestSpec) {
			s.PodUID = "x"
		},
		`contains serviceAccountName ("default") that differs from running pod ("robot")`: func(
			s *certificatesv1.PodCertificateRequestSpec) {
			s.ServiceAccountName = "default"
		},
		`names service account UID "x", which differs from the running service account`: func(
			s *certificatesv1.PodCertificateRequestSpec) {
			s.ServiceAccountUID = "x"
		},
		`pod "default/p" does not mount a podCertificate projected volume for signer "example.com/t"`: func(
			s *certificatesv1.PodCertificateRequestSpec) {
			s.SignerName = "example.com/t"
		},
	} {
		spec := valid
		change(&spec)
		if err := create(t.Context(), "invalid", spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}

	allowGroup(t, s, "other-signer", "system:nodes", rbacv1.PolicyRule{
		Verbs: []string{"request-serviceaccounts-podcertificate-signer"}, APIGroups: []string{"certificates.k8s.io"},
		Resources: []string{"example.com:t"}, ResourceNames: []string{"robot"},
	})
	other := valid
	other.SignerName = "example.com/t"
	poll(t, "a signer that it may use", func(ctx context.Context) bool { return create(ctx, "other", other) == nil })

	foreign := valid
	foreign.NodeName = "n2"
	if _, err := s.Client.CertificatesV1().PodCertificateRequests("default").Create(t.Context(),
		&certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: foreign},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "its own request", func(ctx context.Context) bool {
		_, err := node.Get(ctx, "valid", metav1.GetOptions{})
		return err == nil
	})
	if _, err := node.Get(t.Context(), "foreign", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a request of another node: %v", err)
	}
	if _, err := node.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all requests: %v", err)
	}
	list, err := node.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("its own requests: %d, %v", len(list.Items), err)
	}
	if err := node.Delete(t.Context(), "valid", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deletion of its own request: %v", err)
	}
}
