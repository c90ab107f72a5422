// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
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

// certInterval is how often a supervisor checks which certificates need renewal.
const certInterval = 12 * time.Hour

// Certificate describes one of a cluster's certificates.
type Certificate struct {
	// File is the path of the certificate, relative to the data directory.
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

// Certificates returns all certificates of the cluster that c describes, with the problems that
// they have. The cluster need not be running.
func Certificates(c *Config, clk clock.Clock) ([]Certificate, error) {
	d := c.dirs()
	files, err := filepath.Glob(d.pki("*.crt"))
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	for _, pattern := range []string{currentPair(kubeletClient), currentPair(kubeletServer), proxyPair + ".crt"} {
		more, err := filepath.Glob(filepath.Join(d.nodes(), "*", pattern))
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		files = append(files, more...)
	}
	for _, a := range administrators {
		files = append(files, d.kubeconfig(a.file))
	}
	roots, serving := x509.NewCertPool(), x509.NewCertPool()
	for name := range authorityNames(c) {
		if ca, err := pki.ReadCertificate(d.pki(name + ".crt")); err == nil {
			roots.AddCert(ca)
		}
	}
	if by, err := d.servingAuthority(); err == nil {
		serving.AddCert(by.Cert)
	}
	var out []Certificate
	for _, file := range files {
		trusted := roots
		if strings.HasSuffix(file, currentPair(kubeletServer)) {
			trusted = serving
		}
		out = append(out, d.examine(file, trusted, clk.Now()))
	}
	if len(out) == len(administrators) {
		return nil, fmt.Errorf("%s: %w", d.pki(""), errNoCertificates)
	}
	return out, nil
}

var errNoCertificates = errors.New("no certificates found")

// examine reads the certificate in a file and checks that it is valid.
func (d dirs) examine(file string, roots *x509.CertPool, now time.Time) Certificate {
	name, err := filepath.Rel(d.data, file)
	if err != nil {
		name = file
	}
	out := Certificate{File: name}
	cert, private, err := d.certificateIn(file)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.Subject, out.Expires, out.Left, out.Authority = cert.Subject.String(), cert.NotAfter,
		cert.NotAfter.Sub(now).Truncate(time.Second), cert.IsCA
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
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

// certificateIn reads the certificate in a certificate file or kubeconfig. It also returns the path
// of the file that has the certificate's key.
func (d dirs) certificateIn(file string) (cert *x509.Certificate, key string, err error) {
	switch {
	case strings.HasSuffix(file, ".conf"):
		cfg, err := clientcmd.LoadFromFile(file)
		if err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		for _, user := range cfg.AuthInfos {
			if block, _ := pem.Decode(user.ClientCertificateData); block != nil {
				cert, err = x509.ParseCertificate(block.Bytes)
				return cert, file, err
			}
		}
		return nil, "", errNoCertificates
	case strings.HasSuffix(file, ".pem"): // a kubelet's .pem file may be a link to a path inside the node
		rel, err := filepath.Rel(d.nodes(), file)
		if err != nil {
			return nil, "", err
		}
		node, inside, _ := strings.Cut(rel, "/")
		file = d.node(node).follow("/" + inside)
		cert, err = pki.ReadCertificate(file)
		return cert, file, err
	}
	cert, err = pki.ReadCertificate(file)
	return cert, strings.TrimSuffix(file, ".crt") + ".key", err
}

// RenewCertificates reissues all certificates of a cluster except the authorities. Running
// processes reload the files by themselves, so no process is restarted.
func RenewCertificates(c *Config, deps Deps) error {
	d := c.dirs()
	if err := errors.Join(issueAll(c, deps.Clock, true), makeKubeconfigs(d, c, deps.Clock)); err != nil {
		return err
	}
	if c.Kubeconfig != "" && exists(c.Kubeconfig) {
		if err := mergeKubeconfig(d.kubeconfig("admin"), c.Kubeconfig); err != nil {
			return err
		}
	}
	nodes, err := d.allNodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := renewNode(d, d.node(n.Name), n, deps.Clock, true); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// allNodes returns the nodes whose files are in the data directory.
func (d dirs) allNodes() ([]Node, error) {
	specs, err := filepath.Glob(filepath.Join(d.nodes(), "*", "node.json"))
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	var out []Node
	for _, spec := range specs {
		n := Node{}
		if err := readJSON(spec, &n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return a.Index - b.Index })
	return out, nil
}

// keepCertificates checks certificates periodically and renews those that are due, until ctx ends.
func (s *supervisor) keepCertificates(ctx context.Context) {
	d := s.cfg.dirs()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.deps.Clock.After(certInterval):
		}
		err := makePKI(s.cfg, s.deps.Clock)
		nodes, nodesErr := d.allNodes()
		err = errors.Join(err, nodesErr)
		for _, n := range nodes {
			err = errors.Join(err, renewNode(d, d.node(n.Name), n, s.deps.Clock, false))
		}
		if err != nil {
			s.deps.Log.Error("Failed to renew certificates", "err", err)
		}
	}
}
