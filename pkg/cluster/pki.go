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

// Lifetimes of certificates. Authorities are valid longer than the certificates that they sign. The
// supervisor and the kubelets renew a certificate when a third of its lifetime is left.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// backdate is how long before the current time a certificate becomes valid, in case other
	// clocks are behind.
	backdate = 5 * time.Minute
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// leaf describes a certificate to issue that is not a certificate authority's.
type leaf struct {
	name          string
	organizations []string
	client        bool
	hosts         []string // DNS names and IP addresses, for a server certificate
}

// makePKI creates the cluster's keys and certificates that are missing, with the file names that
// /etc/kubernetes/pki usually has, and renews certificates that expire soon.
func makePKI(c *Config, clk clock.Clock) error { return issueAll(c, clk, false) }

// issueAll creates keys and certificates that are missing, and renews certificates that expire
// soon. If force is true, it reissues all certificates except the authorities'.
func issueAll(c *Config, clk clock.Clock, force bool) error {
	d := c.dirs()
	if err := os.MkdirAll(d.pki(""), 0o700); err != nil {
		return fmt.Errorf("PKI directory: %w", err)
	}
	authorities := map[string]*pair{}
	for file, name := range authorityNames(c) {
		if file == kubeletAuthority && force && !exists(d.pki(file+".crt")) {
			// An older version created the cluster without this authority. The authority is created
			// at the cluster's next start.
			continue
		}
		var err error
		if authorities[file], err = authority(d.pki(file), name, clk); err != nil {
			return err
		}
	}
	for _, want := range controlCertificates(c) {
		crt, key := d.pki(want.file+".crt"), d.pki(want.file+".key")
		if !force && current(crt, key, clk) {
			continue
		}
		if err := issue(authorities[want.authority], want.leaf, clk, crt, key); err != nil {
			return fmt.Errorf("certificate %s: %w", want.file, err)
		}
	}
	return serviceAccountKeys(d)
}

// control describes a certificate of the control plane.
type control struct {
	file string
	leaf
	authority string // file name of the authority that signs the certificate
}

// kubeletAuthority is the authority that signs kubelets' serving certificates. The API server
// trusts it for connections to kubelets. Clients of the API server do not trust it, so that a node
// cannot impersonate the API server, even if it obtains a certificate for another name.
const kubeletAuthority = "kubelet-ca"

// authorityNames returns the subjects of a cluster's certificate authorities by file name. Front
// proxies, kubelets and etcd have separate authorities, so that a certificate is trusted for one
// purpose only.
func authorityNames(c *Config) map[string]string {
	names := map[string]string{"ca": "kubernetes", "front-proxy-ca": "front-proxy-ca", kubeletAuthority: kubeletAuthority}
	if c.replicated() {
		names["etcd-ca"] = "etcd-ca"
	}
	return names
}

// controlCertificates returns the certificates of the control plane.
func controlCertificates(c *Config) []control {
	local := []string{"localhost", "::1"}
	for _, r := range c.replicas() {
		local = append(local, r.local)
	}
	out := []control{
		{file: "apiserver", leaf: leaf{name: "kube-apiserver", hosts: serverHosts(c)}, authority: "ca"},
		// The API server's RBAC rules give the user with this name access to kubelets.
		{file: "apiserver-kubelet-client", leaf: leaf{name: "kube-apiserver-kubelet-client", client: true}, authority: "ca"},
		{file: "front-proxy-client", leaf: leaf{name: "front-proxy-client", client: true}, authority: "front-proxy-ca"},
		{file: controllerManager, leaf: leaf{name: "kube-controller-manager", hosts: local}, authority: "ca"},
		{file: scheduler, leaf: leaf{name: "kube-scheduler", hosts: local}, authority: "ca"},
		{file: controllerManager + "-client", leaf: leaf{name: "system:kube-controller-manager", client: true},
			authority: "ca"},
		{file: scheduler + "-client", leaf: leaf{name: "system:kube-scheduler", client: true}, authority: "ca"},
	}
	if c.replicated() {
		out = append(out, replicatedCertificates()...)
	}
	return out
}

// servingAuthority reads the authority that signs kubelets' serving certificates. If an older
// version started the cluster without this authority, it returns the cluster's main authority,
// which signs these certificates until the next start.
func (d dirs) servingAuthority() (*pair, error) {
	if !exists(d.pki(kubeletAuthority + ".crt")) {
		return readPair(d.pki("ca"))
	}
	return readPair(d.pki(kubeletAuthority))
}

// current reports whether a certificate and its key exist, and more than a third of the
// certificate's lifetime is left.
func current(certFile, keyFile string, c clock.Clock) bool {
	if !exists(keyFile) {
		return false
	}
	cert, err := readCertificate(certFile)
	return err == nil && !due(cert, c.Now())
}

// due reports whether a certificate must be renewed, because less than a third of its lifetime is
// left.
func due(cert *x509.Certificate, now time.Time) bool {
	return cert.NotAfter.Sub(now) < cert.NotAfter.Sub(cert.NotBefore)/3
}

// serverHosts returns all names and addresses by which clients connect to the API server.
func serverHosts(c *Config) []string {
	out := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." +
		clusterDomain, "localhost", "127.0.0.1", "::1"}
	for _, r := range c.IPFamily.ranges() {
		out = append(out, r.api)
	}
	for _, a := range c.controlAddresses() {
		out = append(out, a.String())
	}
	return out
}

// authority reads a self-signed certificate authority from base.crt and base.key. It creates the
// authority if the files do not exist.
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
	certPEM, keyPEM, err := sign(template, template, key, key)
	if err == nil {
		err = writePair(base+".crt", certPEM, base+".key", keyPEM)
	}
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return readPair(base)
}

// issue signs a certificate that l describes, and writes it and its key to files.
func issue(by *pair, l leaf, c clock.Clock, certFile, keyFile string) error {
	cert, key, err := issuePEM(by, l, c)
	if err != nil {
		return err
	}
	return writePair(certFile, cert, keyFile, key)
}

// writePair writes a certificate and its key. It writes the key first, so that a program that finds
// the certificate also finds its key.
func writePair(certFile string, cert []byte, keyFile string, key []byte) error {
	if err := writeFile(keyFile, key, 0o600); err != nil {
		return err
	}
	return writeFile(certFile, cert, 0o600)
}

// issuePEM signs a certificate that l describes, and returns it and its key in PEM.
func issuePEM(by *pair, l leaf, c clock.Clock) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: l.name, Organization: l.organizations},
		NotBefore: c.Now().Add(-backdate),
		NotAfter:  c.Now().Add(leafLife),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	if !l.client || len(l.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range l.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	return sign(template, by.cert, private, by.key)
}

// sign issues a certificate for a key, signed with the authority's key (the last argument). It
// returns the certificate and its key in PEM.
func sign(template, parent *x509.Certificate, key, by crypto.Signer) (certPEM, keyPEM []byte, err error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, nil, fmt.Errorf("sign: %w", err)
	}
	keyPEM, err = encodeKey(key)
	return encodeCertificate(der), keyPEM, err
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serviceAccountKeys creates the key pair that signs service account tokens.
func serviceAccountKeys(d dirs) error {
	if exists(d.pki("sa.key")) && exists(d.pki("sa.pub")) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := writeFile(d.pki("sa.key"), private, 0o600); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	return writeFile(d.pki("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key of type %T", key)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func readPair(base string) (*pair, error) {
	cert, err := readCertificate(base + ".crt")
	if err != nil {
		return nil, err
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

func readCertificate(file string) (*x509.Certificate, error) {
	der, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	return cert, nil
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
