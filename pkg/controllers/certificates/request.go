// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates contains three independent controllers for CertificateSigningRequests to
// Kubernetes' own signers: one approves requests, one signs them, and one deletes old requests.
//
// Only requests from nodes, for their kubelet and their proxy, are approved automatically, and only
// if the requester is allowed to make them. A CertificateSigningRequest that violates the rules of
// its signer is marked as failed when it is approved.
package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// legacyUnknown is the name of a signer that allows all usages.
const legacyUnknown = "kubernetes.io/legacy-unknown"

const (
	nodesGroup = "system:nodes"
	nodePrefix = "system:node:"
)

// parse decodes the PEM block in a CertificateSigningRequest and parses the X.509 certificate
// request in it.
func parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("request %s: PEM block type must be CERTIFICATE REQUEST", csr.Name)
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", csr.Name, err)
	}
	return req, nil
}

// is reports whether a CertificateSigningRequest has a condition of type t that is true. An empty
// status counts as true.
func is(csr *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == t && c.Status != v1.ConditionFalse && c.Status != v1.ConditionUnknown
	})
}

// decided reports whether a CertificateSigningRequest was approved or denied.
func decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return is(csr, certificatesv1.CertificateApproved) || is(csr, certificatesv1.CertificateDenied)
}

// checkKubelet returns an error if a kubelet's request for a certificate violates the rules of the
// signer: of kubernetes.io/kubelet-serving if serving is true, otherwise of
// kubernetes.io/kube-apiserver-client-kubelet.
func checkKubelet(req *x509.CertificateRequest, usages []certificatesv1.KeyUsage, serving bool) error {
	if !slices.Equal(req.Subject.Organization, []string{nodesGroup}) {
		return errors.New("subject organization is not system:nodes")
	}
	switch {
	case serving && len(req.DNSNames)+len(req.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case !serving && len(req.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(req.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case !serving && len(req.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(req.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(req.Subject.CommonName, nodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	auth := certificatesv1.UsageClientAuth
	if serving {
		auth = certificatesv1.UsageServerAuth
	}
	// The usage key encipherment is optional: kubelets request it only for RSA keys.
	want := []certificatesv1.KeyUsage{auth, certificatesv1.UsageDigitalSignature}
	withRSA := append(slices.Clone(want), certificatesv1.UsageKeyEncipherment)
	if !sameUsages(usages, want) && !sameUsages(usages, withRSA) {
		slices.Sort(withRSA)
		return fmt.Errorf("usages did not match %v", withRSA)
	}
	return nil
}

func sameUsages(a, b []certificatesv1.KeyUsage) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), b)
}

// checkClient returns an error if the usages are not allowed for the signer
// kubernetes.io/kube-apiserver-client.
func checkClient(usages []certificatesv1.KeyUsage) error {
	client := false
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		case certificatesv1.UsageClientAuth:
			client = true
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !client {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

// check returns an error if a CertificateSigningRequest violates the rules of its signer. The
// result known reports whether the signer is one of Kubernetes' own signers.
func check(csr *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest) (known bool, err error) {
	switch csr.Spec.SignerName {
	case certificatesv1.KubeletServingSignerName:
		return true, checkKubelet(req, csr.Spec.Usages, true)
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return true, checkKubelet(req, csr.Spec.Usages, false)
	case certificatesv1.KubeAPIServerClientSignerName:
		return true, checkClient(csr.Spec.Usages)
	case legacyUnknown:
		return true, nil
	}
	return false, nil
}
