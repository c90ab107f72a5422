// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

const (
	// pairEnding is the ending of the names of certificate.FileStore's newest pairs.
	pairEnding     = "-current.pem"
	requestTimeout = time.Minute
)

// requestNode requests the certificates of the kubelet and the proxy again that accept rejects, with the
// kubelet's credentials. Their managers also renew them in time; this is for renewals before that.
func (m *Machine) requestNode(ctx context.Context, client kubernetes.Interface, accept func(file string) bool) error {
	ask := m.request
	if ask == nil {
		ask = request
	}
	for _, file := range m.Node.Cluster.NodeCertificateFiles() {
		path := filepath.Join(m.Node.Root, file)
		if accept(path) {
			continue
		}
		if err := ask(ctx, client, path, file); err != nil {
			return fmt.Errorf("certificate %s: %w", path, err)
		}
	}
	return nil
}

// request requests a certificate for a new key with the names that the certificate in the file path has,
// and replaces it. kind is the path as the node sees it.
func request(ctx context.Context, client kubernetes.Interface, path, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	old, err := pki.ReadCertificate(path)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	data, err := cert.MakeCSR(key, &pkix.Name{CommonName: old.Subject.CommonName, Organization: old.Subject.Organization},
		old.DNSNames, old.IPAddresses)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	signer, usages := signerOf(kind, old, key)
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, data, "", signer, nil, usages, key)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	issued, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		return fmt.Errorf("request %s was not approved or signed: %w", name, err)
	}
	dir, base := filepath.Split(path)
	store, err := certificate.NewFileStore(strings.TrimSuffix(base, pairEnding), dir, dir, "", "")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	_, err = store.Update(issued, keyPEM)
	return err
}

// signerOf returns the signer of a node's certificate and its usages.
func signerOf(file string, old *x509.Certificate, key *ecdsa.PrivateKey) (string, []certificatesv1.KeyUsage) {
	switch {
	case file == provision.AgentProxyPair:
		return certificatesv1.KubeAPIServerClientSignerName, certificate.DefaultKubeletClientGetUsages(key)
	case len(old.DNSNames)+len(old.IPAddresses) > 0:
		return certificatesv1.KubeletServingSignerName, certificate.DefaultKubeletServingGetUsages(key)
	}
	return certificatesv1.KubeAPIServerClientKubeletSignerName, certificate.DefaultKubeletClientGetUsages(key)
}
