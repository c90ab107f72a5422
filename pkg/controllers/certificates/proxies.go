// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/nodeclaims"
)

// approveProxy approves a node's CertificateSigningRequest for the client certificate of its own
// proxy. Other requests for client certificates wait for manual approval.
func (c *approving) approveProxy(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	req *x509.CertificateRequest) error {
	if !ownProxy(csr, req) {
		return nil
	}
	node := strings.TrimPrefix(csr.Spec.Username, nodePrefix)
	_, err := c.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		// A kubelet that has just joined may not have created its Node yet. The error makes the queue
		// try again.
		return fmt.Errorf("node of a proxy: %w", err)
	}
	return c.approve(ctx, csr, "Auto approving client certificate for the node's own proxy.")
}

// ownProxy reports whether a CertificateSigningRequest is from a node and for the client certificate
// of this node's proxy.
func ownProxy(csr *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest) bool {
	node, ok := strings.CutPrefix(csr.Spec.Username, nodePrefix)
	return ok && csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName &&
		slices.Contains(csr.Spec.Groups, nodesGroup) &&
		req.Subject.CommonName == nodeclaims.ProxyUser(node) &&
		slices.Equal(req.Subject.Organization, []string{nodeclaims.ProxyGroup}) &&
		len(req.DNSNames)+len(req.IPAddresses)+len(req.EmailAddresses)+len(req.URIs) == 0 &&
		checkClient(csr.Spec.Usages) == nil
}
