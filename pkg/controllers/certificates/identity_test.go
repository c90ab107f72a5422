// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// joining starts an API server whose bootstrap users may request certificates for nodes. It also
// returns the client of a bootstrap user.
func joining(t *testing.T) (*testserver.Server, kubernetes.Interface) {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	for _, role := range []string{"system:node-bootstrapper",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		_, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := kubernetes.NewForConfig(s.UserConfig(t, "system:bootstrap:aaaaaa", "system:bootstrappers"))
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func askFor(t *testing.T, c kubernetes.Interface, name, node string) {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: newRequest(t,
				&x509.CertificateRequest{Subject: pkix.Name{CommonName: nodePrefix + node, Organization: []string{nodesGroup}}}),
			Usages: []certificatesv1.KeyUsage{sign, client}, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		},
	}
	controllertest.Eventually(t, "the right to create requests", func(ctx context.Context) (any, bool) {
		_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
		return err, err == nil || apierrors.IsAlreadyExists(err)
	})
}

func approved(ctx context.Context, t *testing.T, s *testserver.Server) map[string]bool {
	t.Helper()
	list, err := s.Client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for i := range list.Items {
		if is(&list.Items[i], certificatesv1.CertificateApproved) {
			out[list.Items[i].Name] = true
		}
	}
	return out
}

// TestOneCertificateForAName checks that if two machines request a certificate for the same new
// node at the same time, exactly one request is approved, even if the controller's cache lags.
func TestOneCertificateForAName(t *testing.T) {
	const names = 8
	s, c := joining(t)
	for i := range names {
		askFor(t, c, fmt.Sprintf("first-%d", i), fmt.Sprintf("n%d", i))
		askFor(t, c, fmt.Sprintf("second-%d", i), fmt.Sprintf("n%d", i))
	}
	controllertest.Run(t, s, controller.Options{ProtectNodes: true, Workers: 8}, NewApproving)
	controllertest.Eventually(t, "an approval for each name", func(ctx context.Context) (any, bool) {
		got := approved(ctx, t, s)
		return got, len(got) >= names
	})
	askFor(t, c, "last", "last")
	controllertest.Eventually(t, "the last approval", func(ctx context.Context) (any, bool) {
		got := approved(ctx, t, s)
		return got, got["last"]
	})
	got := approved(t.Context(), t, s)
	for i := range names {
		if got[fmt.Sprintf("first-%d", i)] == got[fmt.Sprintf("second-%d", i)] {
			t.Errorf("n%d: approved %v", i, got)
		}
	}
}

// TestLateRights checks that a request is approved if its requester gets the right to make it only
// after the controller has decided about it.
func TestLateRights(t *testing.T) {
	client := fake.NewClientset()
	allowed := false
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}}, nil
	})
	askFor(t, client, "first", "n1")
	csr, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csr.Spec.Username = "system:bootstrap:aaaaaa"
	informers := controller.NewInformers(client, 0)
	made, err := NewApproving(controller.Deps{Client: client, Informers: informers, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := informers.Certificates().V1().CertificateSigningRequests().Informer().GetStore().Add(csr); err != nil {
		t.Fatal(err)
	}
	c := made.(*approving)
	if err := c.sync(t.Context(), "first"); !errors.Is(err, errNotAllowed) {
		t.Errorf("without the right: %v", err) // the queue would not try again
	}
	allowed = true
	if err := c.sync(t.Context(), "first"); err != nil {
		t.Errorf("with the right: %v", err)
	}
	csr, err = client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil || !decided(csr) {
		t.Errorf("the request is not approved: %v, %v", csr, err)
	}
}

// TestNameIsReleased checks that a request for the name of an existing node waits, and that it is
// approved after the node is deleted.
func TestNameIsReleased(t *testing.T) {
	s, c := joining(t)
	controllertest.Run(t, s, controller.Options{ProtectNodes: true}, NewApproving)
	is := func(what, name string) {
		t.Helper()
		controllertest.Eventually(t, what, func(ctx context.Context) (any, bool) {
			got := approved(ctx, t, s)
			return got, got[name]
		})
	}
	askFor(t, c, "first", "n1")
	is("the first certificate", "first")
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	askFor(t, c, "again", "n1")
	askFor(t, c, "other", "n2")
	is("another node's certificate", "other")
	if approved(t.Context(), t, s)["again"] {
		t.Error("the request was approved although the node exists")
	}
	if err := s.Client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	is("the certificate of the node that joins again", "again")
}

// TestNameIsReleasedUnseen checks that a node can join again if it was deleted while no controller ran.
func TestNameIsReleasedUnseen(t *testing.T) {
	s, c := joining(t)
	cert, key := authority(t, 48*time.Hour)
	o := controller.Options{SigningCert: cert, SigningKey: key, SigningDuration: time.Hour, ProtectNodes: true}
	requests := s.Client.CertificatesV1().CertificateSigningRequests()
	t.Run("node registers", func(t *testing.T) {
		controllertest.Run(t, s, o, NewApproving, NewSigning)
		askFor(t, c, "first", "n1")
		controllertest.Eventually(t, "the first certificate", func(ctx context.Context) (any, bool) {
			got, err := requests.Get(ctx, "first", metav1.GetOptions{})
			return got, err == nil && len(got.Status.Certificate) > 0
		})
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		node.Status.NodeInfo.KubeletVersion = "v1.37.0"
		if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "the end of the request", func(ctx context.Context) (any, bool) {
			got, err := requests.Get(ctx, "first", metav1.GetOptions{})
			return got, apierrors.IsNotFound(err)
		})
	})
	if err := s.Client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	askFor(t, c, "again", "n1")
	controllertest.Run(t, s, o, NewApproving)
	controllertest.Eventually(t, "the certificate of the node that joins again", func(ctx context.Context) (any, bool) {
		got := approved(ctx, t, s)
		return got, got["again"]
	})
}

// TestGuards checks that the cleaning controller keeps the request for a node's certificate until
// the node has registered or the certificate has expired.
func TestGuards(t *testing.T) {
	s, c := joining(t)
	cert, key := authority(t, 48*time.Hour)
	o := controller.Options{SigningCert: cert, SigningKey: key, SigningDuration: time.Hour, ProtectNodes: true}
	controllertest.Run(t, s, o, NewApproving, NewSigning)
	askFor(t, c, "first", "n1")
	var issued *certificatesv1.CertificateSigningRequest
	controllertest.Eventually(t, "a certificate", func(ctx context.Context) (any, bool) {
		got, err := s.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, "first", metav1.GetOptions{})
		issued = got
		return got, err == nil && len(got.Status.Certificate) > 0
	})
	informers := controller.NewInformers(s.Client, 0)
	made, err := NewCleaning(controller.Deps{Informers: informers, Options: o})
	if err != nil {
		t.Fatal(err)
	}
	cleaner, store := made.(*cleaning), informers.Core().V1().Nodes().Informer().GetStore()
	now := time.Now()
	if !cleaner.guards(issued, now) {
		t.Error("the request is not kept before its node has registered")
	}
	if cleaner.guards(issued, now.Add(2*time.Hour)) {
		t.Error("the request is kept although its certificate has expired")
	}
	if err := store.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	if cleaner.guards(issued, now) {
		t.Error("the request is kept although its node has registered")
	}
}
