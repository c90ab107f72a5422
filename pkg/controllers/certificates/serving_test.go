// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
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
	"keelson.dev/keelson/pkg/nodeclaims"
)

// TestRefuseServing checks that a node gets serving certificates only for its own name and
// addresses.
func TestRefuseServing(t *testing.T) {
	node := func(name string, addresses ...string) v1.Node {
		n := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
		}
		return n
	}
	nodes := []v1.Node{
		node("n1", "10.0.0.1", "10.0.0.8", "10.0.0.9", "10.0.0.100", "10.96.0.7", "127.0.0.1", "::1", "fd00::1"),
		node("n2", "10.0.0.2", "10.0.0.9"), node("n3", "10.0.0.8"),
	}
	nodes[1].CreationTimestamp, nodes[0].CreationTimestamp, nodes[2].CreationTimestamp = metav1.Unix(1, 0),
		metav1.Unix(2, 0), metav1.Unix(3, 0)
	reserved := nodeclaims.Reserved{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"),
		netip.MustParsePrefix("10.0.0.100/32")}}
	for name, tc := range map[string]struct {
		user      string
		subject   string
		groups    []string
		dns       []string
		addresses []string
		usage     certificatesv1.KeyUsage
		ok        bool
		early     bool
	}{
		"its own":                  {dns: []string{"n1"}, addresses: []string{"10.0.0.1"}, ok: true},
		"both families":            {dns: []string{"n1"}, addresses: []string{"10.0.0.1", "fd00::1"}, ok: true},
		"no name":                  {addresses: []string{"10.0.0.1"}, ok: true},
		"another node's name":      {dns: []string{"n2"}, addresses: []string{"10.0.0.1"}},
		"a service's name":         {dns: []string{"n1", "kubernetes.default.svc"}, addresses: []string{"10.0.0.1"}},
		"another node's address":   {dns: []string{"n1"}, addresses: []string{"10.0.0.2"}, early: true},
		"an older node's address":  {dns: []string{"n1"}, addresses: []string{"10.0.0.9"}},
		"the API server's address": {dns: []string{"n1"}, addresses: []string{"10.0.0.100"}},
		"an address of no node":    {dns: []string{"n1"}, addresses: []string{"10.0.0.3"}, early: true},
		"a node that does not exist yet": {user: "system:node:n4", subject: "system:node:n4", dns: []string{"n4"},
			addresses: []string{"10.0.0.4"}, early: true},
		"requested by another node": {user: "system:node:n2", dns: []string{"n1"}, addresses: []string{"10.0.0.1"}},
		"requested by no node": {groups: []string{"system:bootstrappers"}, dns: []string{"n1"},
			addresses: []string{"10.0.0.1"}},
		"for client usage":    {dns: []string{"n1"}, addresses: []string{"10.0.0.1"}, usage: client},
		"an old address":      {dns: []string{"n1"}, addresses: []string{"10.0.0.8"}, ok: true},
		"a service's address": {dns: []string{"n1"}, addresses: []string{"10.96.0.7"}},
		"loopback":            {dns: []string{"n1"}, addresses: []string{"127.0.0.1"}},
		"loopback of IPv6":    {dns: []string{"n1"}, addresses: []string{"::1"}},
		"nothing":             {},
	} {
		t.Run(name, func(t *testing.T) {
			req := &x509.CertificateRequest{Subject: nodeSubject(), DNSNames: tc.dns}
			if tc.subject != "" {
				req.Subject.CommonName = tc.subject
			}
			for _, a := range tc.addresses {
				req.IPAddresses = append(req.IPAddresses, net.ParseIP(a))
			}
			csr := &certificatesv1.CertificateSigningRequest{}
			csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
			csr.Spec.Username, csr.Spec.Groups = "system:node:n1", []string{nodesGroup, "system:authenticated"}
			csr.Spec.Usages = []certificatesv1.KeyUsage{sign, server}
			if tc.user != "" {
				csr.Spec.Username = tc.user
			}
			if tc.groups != nil {
				csr.Spec.Groups = tc.groups
			}
			if tc.usage != "" {
				csr.Spec.Usages[1] = tc.usage
			}
			why, early := refuseServing(csr, req, nodes, reserved)
			if (why == "") != tc.ok || early != tc.early {
				t.Errorf("reason %q, early %t, want ok %t, early %t", why, early, tc.ok, tc.early)
			}
		})
	}
}

// TestServingOnControlPlane checks that a node that has the address of an API server gets a serving
// certificate for it only if the authority of serving certificates signs nothing else. Another node
// gets one in any case.
func TestServingOnControlPlane(t *testing.T) {
	for name, own := range map[string]bool{"own authority": true, "common authority": false} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t, testserver.Options{})
			clientCert, clientKey := authority(t, time.Hour)
			servingCert, servingKey := clientCert, clientKey
			if own {
				servingCert, servingKey = authority(t, time.Hour)
			}
			controllertest.Run(t, s, controller.Options{ApproveServing: true, SigningDuration: time.Hour,
				Signers: map[string]controller.KeyPair{
					certificatesv1.KubeletServingSignerName:             {Cert: servingCert, Key: servingKey},
					certificatesv1.KubeAPIServerClientKubeletSignerName: {Cert: clientCert, Key: clientKey},
				}}, NewApproving)
			ends, err := s.Client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			address := ends.Subsets[0].Addresses[0].IP
			create := func(name, address string) {
				t.Helper()
				n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{
					Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}}}
				if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			requests := s.Client.CertificatesV1().CertificateSigningRequests()
			ask := func(node, address string) {
				t.Helper()
				rc := rest.CopyConfig(s.Config)
				rc.Impersonate = rest.ImpersonationConfig{UserName: nodePrefix + node,
					Groups: []string{nodesGroup, "system:authenticated"}}
				c, err := kubernetes.NewForConfig(rc)
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.CertificatesV1().CertificateSigningRequests().Create(t.Context(),
					&certificatesv1.CertificateSigningRequest{
						ObjectMeta: metav1.ObjectMeta{Name: node},
						Spec: certificatesv1.CertificateSigningRequestSpec{
							SignerName: certificatesv1.KubeletServingSignerName,
							Usages:     []certificatesv1.KeyUsage{sign, server},
							Request: newRequest(t, &x509.CertificateRequest{
								Subject:     pkix.Name{CommonName: nodePrefix + node, Organization: []string{nodesGroup}},
								IPAddresses: []net.IP{net.ParseIP(address)},
							}),
						},
					}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
			approved := func(node string) bool {
				got, err := requests.Get(t.Context(), node, metav1.GetOptions{})
				return err == nil && is(got, certificatesv1.CertificateApproved)
			}
			create("n1", address)
			ask("n1", address)
			ask("n2", "192.0.2.77")
			create("n2", "192.0.2.77") // a node may report its addresses after its request
			controllertest.Eventually(t, "approval", func(context.Context) (any, bool) {
				return nil, approved("n2") && (!own || approved("n1"))
			})
			if !own && approved("n1") {
				t.Error("the request was approved")
			}
		})
	}
}
