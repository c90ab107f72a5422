// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	Signer  string        `json:"signer"` // common name of the authority
	Expires time.Time     `json:"expires"`
	Left    time.Duration `json:"left"`
	Life    time.Duration `json:"life"` // the whole lifetime
	// Authority is true for a certificate authority, which signs other certificates. Authorities
	// are not renewed.
	Authority bool `json:"authority,omitempty"`
	// Renewal says what renews the certificate.
	Renewal string `json:"renewal,omitempty"`
	// Problem says what is wrong with the certificate. It is empty if the certificate is valid.
	Problem string `json:"problem,omitempty"`
}

// crossEnding is the ending of the names of files with an authority's cross certificates.
const crossEnding = "-cross.crt"

// CertificateFiles returns the control plane's files with certificates: first those below pki, then
// the administrators' kubeconfig files.
func (d Dir) CertificateFiles() (certificates, kubeconfigs []string, err error) {
	for _, pattern := range []string{"*.crt", "*/*.crt"} {
		files, err := filepath.Glob(d.PKI(pattern))
		if err != nil {
			return nil, nil, fmt.Errorf("certificates: %w", err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, crossEnding) {
				certificates = append(certificates, f)
			}
		}
	}
	for _, a := range administrators {
		kubeconfigs = append(kubeconfigs, d.Kubeconfig(a.file))
	}
	return certificates, kubeconfigs, nil
}

// NodeCertificateFiles returns the paths of a node's certificates, as the node sees them.
func (c *Cluster) NodeCertificateFiles() []string {
	if c.Machines {
		return []string{currentPair(kubeletClient), currentPair(kubeletServer), AgentProxyPair}
	}
	return []string{currentPair(kubeletClient), currentPair(kubeletServer), ProxyCertificate + ".crt"}
}

// Trust has the authorities of a cluster.
type Trust struct {
	all, serving *x509.CertPool
	// signing has the authorities that sign. It is empty on a node without a control plane, which has
	// no keys of authorities.
	signing []*pki.Authority
	// hasServing is false if the authority of kubelets' serving certificates is not known here.
	hasServing bool
}

// Trust reads the certificates of the authorities, as far as there are any.
func (p *ControlPlane) Trust() *Trust {
	t := &Trust{all: x509.NewCertPool(), serving: x509.NewCertPool()}
	for name := range p.authorities() {
		base := p.Dir.PKI(name)
		bundle, _ := pki.ReadCertificates(base + ".crt")
		for _, ca := range bundle {
			t.all.AddCert(ca)
			if name == p.Dir.servingAuthority() {
				t.serving.AddCert(ca)
				t.hasServing = true
			}
		}
		if a, err := pki.ReadAuthority(base); err == nil {
			t.signing = append(t.signing, a)
		}
	}
	return t
}

// Trust reads the certificates of the authorities that a node without a control plane knows.
func (n *Node) Trust() *Trust {
	t := &Trust{all: x509.NewCertPool(), serving: x509.NewCertPool()}
	bundle, _ := pki.ReadCertificates(n.path(nodeCA))
	for _, ca := range bundle {
		t.all.AddCert(ca)
	}
	return t
}

// NodeAuthorityFile is the path of the file with the authorities that a node trusts, as the node sees
// it.
const NodeAuthorityFile = nodeCA

// Renew renews the control plane's certificates that expire soon, or that an authority has signed which
// is being replaced, those in the administrators' kubeconfig files included. It returns an error, and
// writes nothing, if an authority is missing.
func (p *ControlPlane) Renew(clk clock.Clock) error {
	if err := p.haveAuthorities(); err != nil {
		return err
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
		if trust.Check("", file, clk.Now()).Problem != "" || !p.trustsAll(file) {
			return p.WriteKubeconfigs(clk)
		}
	}
	return nil
}

// Reissue issues all certificates of the control plane again, except those of the authorities.
func (p *ControlPlane) Reissue(clk clock.Clock) error {
	if err := p.haveAuthorities(); err != nil {
		return err
	}
	return errors.Join(p.IssueCertificates(true, clk), p.WriteKubeconfigs(clk))
}

// haveAuthorities returns an error if an authority is missing.
func (p *ControlPlane) haveAuthorities() error {
	for file := range p.authorities() {
		if _, err := pki.ReadAuthority(p.Dir.PKI(file)); err != nil {
			return fmt.Errorf("authority: %w", err)
		}
	}
	return nil
}

// trustsAll reports whether a kubeconfig has the same authorities as the cluster.
func (p *ControlPlane) trustsAll(kubeconfig string) bool {
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return false
	}
	ca, err := os.ReadFile(p.Dir.PKI("ca.crt"))
	if err != nil {
		return false
	}
	for _, c := range cfg.Clusters {
		if len(c.CertificateAuthorityData) > 0 && !bytes.Equal(c.CertificateAuthorityData, ca) {
			return false
		}
	}
	return true
}

// CheckAuthorities checks the certificates in a file with authorities. file is as for Check.
func (t *Trust) CheckAuthorities(root, file string, now time.Time) []Certificate {
	bundle, err := pki.ReadCertificates(filepath.Join(root, file))
	if err != nil {
		return []Certificate{{File: filepath.Join(root, file), Authority: true, Problem: err.Error()}}
	}
	var out []Certificate
	for _, ca := range bundle {
		c := t.describe(filepath.Join(root, file), ca, now)
		if _, err := ca.Verify(x509.VerifyOptions{Roots: t.all, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			c.Problem = err.Error()
		} else if t.signs(ca) {
			_, key, _ := certificateIn(root, file)
			c.Problem = keyProblem(key)
		}
		out = append(out, c)
	}
	return out
}

// signs reports whether an authority signs certificates here.
func (t *Trust) signs(ca *x509.Certificate) bool {
	return slices.ContainsFunc(t.signing, func(a *pki.Authority) bool { return a.Cert.Equal(ca) })
}

func (t *Trust) describe(path string, cert *x509.Certificate, now time.Time) Certificate {
	return Certificate{File: path, Subject: cert.Subject.String(), Signer: cert.Issuer.CommonName, Expires: cert.NotAfter,
		Left: cert.NotAfter.Sub(now).Truncate(time.Second), Life: cert.NotAfter.Sub(cert.NotBefore), Authority: cert.IsCA}
}

// Check reads the certificate in a certificate file or kubeconfig, and checks that it is valid. If the
// file belongs to a node, file is its path as the node sees it, and root the directory that the node
// sees as /.
func (t *Trust) Check(root, file string, now time.Time) Certificate {
	cert, private, err := certificateIn(root, file)
	if err != nil {
		return Certificate{File: filepath.Join(root, file), Problem: err.Error()}
	}
	out := t.describe(filepath.Join(root, file), cert, now)
	if out.Problem = t.invalid(cert, file == currentPair(kubeletServer), now); out.Problem == "" {
		out.Problem = keyProblem(private)
	}
	switch {
	case out.Problem != "" || cert.IsCA:
	case pki.Due(cert, now):
		out.Problem = "it must be renewed"
	case len(t.signing) > 0 && !slices.ContainsFunc(t.signing, func(a *pki.Authority) bool { return a.Signed(cert) }):
		out.Problem = "it must be renewed: another authority signs now"
	}
	return out
}

// invalid returns why a certificate is not valid, or "". serving is true for the serving certificate of
// a kubelet.
func (t *Trust) invalid(cert *x509.Certificate, serving bool, now time.Time) string {
	trusted := t.all
	if serving {
		trusted = t.serving
	}
	if serving && !t.hasServing { // its authority is not known here
		if now.After(cert.NotAfter) {
			return "it has expired"
		}
		return ""
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return err.Error()
	}
	return ""
}

// keyProblem returns what is wrong with the file of a private key, or "".
func keyProblem(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return "the file of its key is missing"
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Sprintf("other users may read its key: mode %04o", info.Mode().Perm())
	}
	return ""
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
