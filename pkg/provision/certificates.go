// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// Certificate describes one of a cluster's certificates.
type Certificate struct {
	File    string        `json:"file"`
	Subject string        `json:"subject"`
	Expires time.Time     `json:"expires"`
	Left    time.Duration `json:"left"`
	// Authority is true for a certificate authority, which signs other certificates. Authorities
	// are not renewed.
	Authority bool `json:"authority,omitempty"`
	// Problem says what is wrong with the certificate. It is empty if the certificate is valid.
	Problem string `json:"problem,omitempty"`
}

// CertificateFiles returns the control plane's files with certificates: first those below pki, then
// the administrators' kubeconfig files.
func (d Dir) CertificateFiles() (certificates, kubeconfigs []string, err error) {
	for _, pattern := range []string{"*.crt", "*/*.crt"} {
		files, err := filepath.Glob(d.PKI(pattern))
		if err != nil {
			return nil, nil, fmt.Errorf("certificates: %w", err)
		}
		certificates = append(certificates, files...)
	}
	for _, a := range administrators {
		kubeconfigs = append(kubeconfigs, d.Kubeconfig(a.file))
	}
	return certificates, kubeconfigs, nil
}

// NodeCertificateFiles returns the paths of a node's certificates, as the node sees them.
func NodeCertificateFiles() []string {
	return []string{currentPair(kubeletClient), currentPair(kubeletServer), ProxyCertificate + ".crt"}
}

// Trust has the authorities of a cluster.
type Trust struct{ all, serving *x509.CertPool }

// Trust reads the certificates of the authorities, as far as there are any.
func (p *ControlPlane) Trust() *Trust {
	t := &Trust{all: x509.NewCertPool(), serving: x509.NewCertPool()}
	for name := range p.authorities() {
		if ca, err := pki.ReadCertificate(p.Dir.PKI(name + ".crt")); err == nil {
			t.all.AddCert(ca)
		}
	}
	if ca, err := pki.ReadCertificate(p.Dir.PKI(p.Dir.servingAuthority() + ".crt")); err == nil {
		t.serving.AddCert(ca)
	}
	return t
}

// Renew renews the control plane's certificates that expire soon, those in the administrators' kubeconfig
// files included. It returns an error, and writes nothing, if an authority is missing.
func (p *ControlPlane) Renew(clk clock.Clock) error {
	for file := range p.authorities() {
		if _, err := pki.ReadAuthority(p.Dir.PKI(file)); err != nil {
			return fmt.Errorf("authority: %w", err)
		}
	}
	if err := p.IssueCertificates(false, clk); err != nil {
		return err
	}
	_, kubeconfigs, err := p.Dir.CertificateFiles()
	if err != nil {
		return err
	}
	trust := p.Trust()
	for _, file := range kubeconfigs {
		if trust.Check("", file, clk.Now()).Problem != "" {
			return p.WriteKubeconfigs(clk)
		}
	}
	return nil
}

// Check reads the certificate in a certificate file or kubeconfig, and checks that it is valid. If the
// file belongs to a node, file is its path as the node sees it, and root the directory that the node
// sees as /.
func (t *Trust) Check(root, file string, now time.Time) Certificate {
	out := Certificate{File: filepath.Join(root, file)}
	cert, private, err := certificateIn(root, file)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.Subject, out.Expires, out.Left, out.Authority = cert.Subject.String(), cert.NotAfter,
		cert.NotAfter.Sub(now).Truncate(time.Second), cert.IsCA
	trusted := t.all
	if file == currentPair(kubeletServer) {
		trusted = t.serving
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	info, statErr := os.Stat(private)
	switch {
	case err != nil:
		out.Problem = err.Error()
	case statErr != nil:
		out.Problem = "the file of its key is missing"
	case info.Mode().Perm()&0o077 != 0:
		out.Problem = fmt.Sprintf("other users may read its key: mode %04o", info.Mode().Perm())
	case !cert.IsCA && pki.Due(cert, now):
		out.Problem = "it must be renewed"
	}
	return out
}

var errNoCertificate = errors.New("no certificates found")

// certificateIn reads the certificate in a certificate file or kubeconfig. It also returns the path
// of the file that has the certificate's key.
func certificateIn(root, file string) (cert *x509.Certificate, key string, err error) {
	path := filepath.Join(root, file)
	switch filepath.Ext(file) {
	case ".conf":
		cfg, err := clientcmd.LoadFromFile(path)
		if err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		for _, user := range cfg.AuthInfos {
			if block, _ := pem.Decode(user.ClientCertificateData); block != nil {
				cert, err = x509.ParseCertificate(block.Bytes)
				return cert, path, err
			}
		}
		return nil, "", errNoCertificate
	case ".pem": // a kubelet's .pem file may be a link to a path inside the node
		path = follow(root, file)
		cert, err = pki.ReadCertificate(path)
		return cert, path, err
	}
	cert, err = pki.ReadCertificate(path)
	return cert, strings.TrimSuffix(path, ".crt") + ".key", err
}

// follow resolves a symbolic link inside a node, and returns the path of its target on the machine.
func follow(root, inside string) string {
	target, err := os.Readlink(filepath.Join(root, inside))
	switch {
	case err != nil:
		target = inside
	case !filepath.IsAbs(target):
		target = filepath.Join(filepath.Dir(inside), target)
	}
	return filepath.Join(root, target)
}
