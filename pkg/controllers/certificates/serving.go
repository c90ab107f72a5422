// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// approveServing approves a kubelet's CertificateSigningRequest for a serving certificate if all
// names and addresses in it are those of the kubelet's node. Otherwise the request waits for manual
// approval.
func (c *approving) approveServing(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	req *x509.CertificateRequest) error {
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	own, err := c.Client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("own service: %w", err)
	}
	// The API server always publishes its own addresses as the Endpoints of the service kubernetes.
	ends, err := c.Client.CoreV1().Endpoints(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("own endpoints: %w", err)
	}
	reserved := c.reserved()
	addresses := own.Spec.ClusterIPs
	if !c.ownServingAuthority() {
		addresses = slices.Concat(addresses, c.Options.ServerNames)
		for _, s := range ends.Subsets {
			for _, a := range s.Addresses {
				addresses = append(addresses, a.IP)
			}
		}
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			reserved.Ranges = append(reserved.Ranges, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	why, early := refuseServing(csr, req, nodes.Items, reserved)
	if early {
		// A kubelet requests the certificate before it has reported its addresses.
		return fmt.Errorf("serving certificate for %s: %w: %s", csr.Spec.Username, controller.ErrNotYet, why)
	}
	if why != "" {
		c.Log.Info("Request for a serving certificate needs manual approval", "request", csr.Name, "user",
			csr.Spec.Username, "reason", why)
		return nil
	}
	return c.approve(ctx, csr, "Auto approving kubelet serving certificate for the node's own names and addresses.")
}

// ownServingAuthority reports whether serving certificates of kubelets are signed by an authority that
// signs nothing else. Clients of the API server do not trust it. So a node that is also the machine of
// an API server may have a certificate for the address that it shares with the API server.
func (c *approving) ownServingAuthority() bool {
	serving := c.Options.Signers[certificatesv1.KubeletServingSignerName].Cert
	clients := c.Options.Signers[certificatesv1.KubeAPIServerClientKubeletSignerName].Cert
	return len(c.Options.SigningCert) == 0 && len(serving) > 0 && !bytes.Equal(serving, clients)
}

// refuseServing returns the reason why a CertificateSigningRequest must not be approved
// automatically, or "" if all names and addresses in it are the node's own. A node writes its names
// and addresses into its status itself, so they cannot be trusted: reserved ones are rejected, and
// if several nodes report the same address, it belongs to the oldest of them. early is true if the
// reason may only be that the node has not reported its addresses yet.
func refuseServing(csr *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest, nodes []v1.Node,
	reserved nodeclaims.Reserved) (why string, early bool) {
	if err := checkKubelet(req, csr.Spec.Usages, true); err != nil {
		return err.Error(), false
	}
	if csr.Spec.Username != req.Subject.CommonName || !slices.Contains(csr.Spec.Groups, nodesGroup) {
		return "the requester is not the node", false
	}
	name := strings.TrimPrefix(csr.Spec.Username, nodePrefix)
	at := slices.IndexFunc(nodes, func(n v1.Node) bool { return n.Name == name })
	if at < 0 {
		return "there is no such node", true
	}
	for _, dns := range req.DNSNames {
		if dns != name {
			return "the name " + dns + " is not the node's", false
		}
		if why := reserved.Name(dns); why != "" {
			return "the name " + dns + " is not for nodes: " + why, false
		}
	}
	for _, ip := range req.IPAddresses {
		if !hasAddress(&nodes[at], ip) {
			return "the address " + ip.String() + " is not the node's", true
		}
		if why := refuseAddress(&nodes[at], ip, nodes, reserved); why != "" {
			return "the address " + ip.String() + " " + why, false
		}
	}
	return "", false
}

// refuseAddress returns the reason why an address that a node reports does not belong to it, or "" if
// it does.
func refuseAddress(n *v1.Node, ip net.IP, nodes []v1.Node, reserved nodeclaims.Reserved) string {
	own := nodeclaims.Of(n)
	for i := range nodes {
		other := &nodes[i]
		if other.Name != n.Name && hasAddress(other, ip) && nodeclaims.Older(nodeclaims.Of(other), own) < 0 {
			return "is also that of node " + other.Name + ", which is older"
		}
	}
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return "is not valid"
	}
	if why := reserved.Address(a); why != "" {
		return "is not for nodes: " + why
	}
	return ""
}

func hasAddress(n *v1.Node, ip net.IP) bool {
	return slices.ContainsFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return ip.Equal(net.ParseIP(a.Address)) })
}
