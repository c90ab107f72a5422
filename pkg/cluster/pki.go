// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"keelson.dev/api/clock"
)

// Certificates live long enough for a cluster on one machine never to meet
// their end; authorities live longer than what they sign.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 3 * 365 * 24 * time.Hour
	// backdate allows for clocks that differ a little.
	backdate = 5 * time.Minute
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// leaf is what a certificate is asked for.
type leaf struct {
	name          string
	organizations []string
	client        bool
	hosts         []string // for servers
}

// makePKI makes what is missing of the cluster's keys and certificates, in the
// layout of /etc/kubernetes/pki.
func makePKI(d dirs, c clock.Clock) error {
	if err := os.MkdirAll(d.pki(""), 0o700); err != nil {
		return fmt.Errorf("PKI directory: %w", err)
	}
	ca, err := authority(d.pki("ca"), "kubernetes", c)
	if err != nil {
		return err
	}
	front, err := authority(d.pki("front-proxy-ca"), "front-proxy-ca", c)
	if err != nil {
		return err
	}
	for _, want := range []struct {
		file   string
		signer *pair
		leaf
	}{
		{"apiserver", ca, leaf{name: "kube-apiserver", hosts: serverHosts()}},
		{"apiserver-kubelet-client", ca, leaf{name: "kube-apiserver-kubelet-client", organizations: []string{"kubeadm:cluster-admins"}, client: true}},
		{"front-proxy-client", front, leaf{name: "front-proxy-client", client: true}},
	} {
		if exists(d.pki(want.file+".crt")) && exists(d.pki(want.file+".key")) {
			continue
		}
		if err := issue(want.signer, want.leaf, c, d.pki(want.file+".crt"), d.pki(want.file+".key")); err != nil {
			return fmt.Errorf("certificate %s: %w", want.file, err)
		}
	}
	return serviceAccountKeys(d)
}

// serverHosts is every name and address that clients reach the API server by.
func serverHosts() []string {
	return []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain, "localhost",
		serviceAPI, controlAddress, "127.0.0.1", "::1",
	}
}

// authority reads or makes a self-signed authority in base.crt and base.key.
func authority(base, name string, c clock.Clock) (*pair, error) {
	if exists(base+".crt") && exists(base+".key") {
		return readPair(base)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             c.Now().Add(-backdate),
		NotAfter:              c.Now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{name},
	}
	if err := sign(template, template, key, key, base+".crt", base+".key"); err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return readPair(base)
}

// issue signs a certificate for l and writes it and its key.
func issue(by *pair, l leaf, c clock.Clock, certFile, keyFile string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.name, Organization: l.organizations},
		NotBefore:   c.Now().Add(-backdate),
		NotAfter:    c.Now().Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if l.client {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	for _, h := range l.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return sign(template, by.cert, key, by.key, certFile, keyFile)
}

func sign(template, parent *x509.Certificate, key, by crypto.Signer, certFile, keyFile string) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	// The key goes first: who finds the certificate finds the key beside it.
	if err := writeKey(keyFile, key); err != nil {
		return err
	}
	return writeFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// serviceAccountKeys makes the pair that service account tokens are signed with.
func serviceAccountKeys(d dirs) error {
	if exists(d.pki("sa.key")) && exists(d.pki("sa.pub")) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	if err := writeKey(d.pki("sa.key"), key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	return writeFile(d.pki("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func writeKey(file string, key crypto.Signer) error {
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("key of type %T", key)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return writeFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func readPair(base string) (*pair, error) {
	certDER, err := readPEM(base + ".crt")
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, fmt.Errorf("certificate %s.crt: %w", base, err)
	}
	keyDER, err := readPEM(base + ".key")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, fmt.Errorf("key %s.key: %w", base, err)
	}
	return &pair{cert: cert, key: key}, nil
}

func readPEM(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read PEM: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: %w", file, errors.New("no PEM block"))
	}
	return block.Bytes, nil
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
