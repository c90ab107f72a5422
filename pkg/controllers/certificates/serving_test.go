// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"net"
	"net/netip"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		groups    []string
		dns       []string
		addresses []string
		usage     certificatesv1.KeyUsage
		ok        bool
	}{
		"its own":                   {dns: []string{"n1"}, addresses: []string{"10.0.0.1"}, ok: true},
		"both families":             {dns: []string{"n1"}, addresses: []string{"10.0.0.1", "fd00::1"}, ok: true},
		"no name":                   {addresses: []string{"10.0.0.1"}, ok: true},
		"another node's name":       {dns: []string{"n2"}, addresses: []string{"10.0.0.1"}},
		"a service's name":          {dns: []string{"n1", "kubernetes.default.svc"}, addresses: []string{"10.0.0.1"}},
		"another node's address":    {dns: []string{"n1"}, addresses: []string{"10.0.0.2"}},
		"an older node's address":   {dns: []string{"n1"}, addresses: []string{"10.0.0.9"}},
		"the API server's address":  {dns: []string{"n1"}, addresses: []string{"10.0.0.100"}},
		"an address of no node":     {dns: []string{"n1"}, addresses: []string{"10.0.0.3"}},
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
			if why := refuseServing(csr, req, nodes, reserved); (why == "") != tc.ok {
				t.Errorf("reason %q, want ok %t", why, tc.ok)
			}
		})
	}
}
