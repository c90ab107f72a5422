// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/pki"
)

// The certificates are written to the directory in which the kubelet stores the certificates that
// it requests itself. NAME-current.pem is a link to the latest file with a certificate and its key.
const (
	kubeletClient = "kubelet-client"
	kubeletServer = "kubelet-server"
)

func currentPair(name string) string { return filepath.Join(kubeletCerts, name+"-current.pem") }

// kubeletLeaf returns the description of a certificate for a node's kubelet: the serving
// certificate if serving is true, and otherwise the client certificate.
func kubeletLeaf(n Node, serving bool) pki.Leaf {
	l := pki.Leaf{Name: "system:node:" + n.Name, Organizations: []string{"system:nodes"}, Client: !serving}
	if serving {
		// These are exactly the names and addresses that the kubelet requests when it renews the
		// certificate.
		l.Hosts = append([]string{n.Name}, n.Addresses()...)
	}
	return l
}

// proxyLeaf returns the description of the client certificate of a node's proxy. The group has the
// proxy's rights. The name shows in audit logs which node sent a request.
func proxyLeaf(n Node) pki.Leaf {
	return pki.Leaf{Name: "system:kube-proxy:" + n.Name, Organizations: []string{"keelson:proxies"}, Client: true}
}

// nodeCredentials issues the credentials of a node's daemons, as far as they are missing or expire
// soon.
func nodeCredentials(d dirs, nd nodeDirs, c *Config, n Node, clk clock.Clock) error {
	ca, err := os.ReadFile(d.pki("ca.crt"))
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	if err := atomicfile.WriteDurably(nd.path(nodeCA), ca, 0o644); err != nil {
		return err
	}
	if err := renewNode(d, nd, n, clk, false); err != nil {
		return err
	}
	if pair := currentPair(kubeletClient); !n.Joins {
		err = writeKubeconfig(d, c.Name, nd.path(kubeletConf), "system:node:"+n.Name, fileUser(pair, pair), c.clusterServer())
	}
	return errors.Join(err, writeKubeconfig(d, c.Name, nd.path(proxyConf), proxyLeaf(n).Name,
		fileUser(proxyPair+".crt", proxyPair+".key"), c.clusterServer()))
}

// renewNode reissues the certificates of a node that are due, or all of them if force is true. It
// skips the kubelet's certificates if the node joined with a token, because that kubelet requests
// its own certificates.
func renewNode(d dirs, nd nodeDirs, n Node, clk clock.Clock, force bool) error {
	signer, err := pki.ReadAuthority(d.pki("ca"))
	if err != nil {
		return err
	}
	serving, err := d.servingAuthority()
	if err != nil {
		return err
	}
	if err := dropServing(nd, serving); err != nil {
		return err
	}
	for name, by := range map[string]*pki.Authority{kubeletClient: signer, kubeletServer: serving} {
		if file := nd.follow(currentPair(name)); n.Joins || !force && pki.Current(file, file, clk) {
			continue
		}
		if err := seedPair(by, nd, name, kubeletLeaf(n, name == kubeletServer), clk); err != nil {
			return fmt.Errorf("certificate %s: %w", name, err)
		}
	}
	return renewProxy(signer, nd, proxyLeaf(n), clk, force)
}

// renewProxy issues the certificate of a node's proxy if it is due, or if its subject is outdated.
// In older versions, the certificates of all proxies had the same subject.
func renewProxy(by *pki.Authority, nd nodeDirs, l pki.Leaf, clk clock.Clock, force bool) error {
	cert, key := nd.path(proxyPair+".crt"), nd.path(proxyPair+".key")
	if !force && pki.Current(cert, key, clk) {
		if present, err := pki.ReadCertificate(cert); err == nil && present.Subject.CommonName == l.Name {
			return nil
		}
	}
	if err := by.IssueTo(cert, key, l, clk); err != nil {
		return fmt.Errorf("certificate of the proxy: %w", err)
	}
	return nil
}

// dropServing removes a kubelet's serving certificate if it was not signed by the given authority,
// as in clusters of older versions. A kubelet that starts without a serving certificate requests a
// new one.
func dropServing(nd nodeDirs, by *pki.Authority) error {
	cert, err := pki.ReadCertificate(nd.follow(currentPair(kubeletServer)))
	if err != nil || cert.CheckSignatureFrom(by.Cert) == nil {
		return nil // there is no certificate, or the right authority has signed it
	}
	if err := os.Remove(nd.path(currentPair(kubeletServer))); err != nil {
		return fmt.Errorf("old serving certificate: %w", err)
	}
	return nil
}

// seedPair issues a certificate and writes it into the kubelet's certificate directory, in the form
// in which the kubelet stores its own certificates.
func seedPair(by *pki.Authority, nd nodeDirs, name string, l pki.Leaf, clk clock.Clock) error {
	cert, key, err := by.Issue(l, clk)
	if err != nil {
		return err
	}
	file := fmt.Sprintf("%s-%s.pem", name, clk.Now().UTC().Format("2006-01-02-15-04-05"))
	if err := atomicfile.WriteDurably(nd.path(kubeletCerts, file), append(cert, key...), 0o600); err != nil {
		return err
	}
	link := nd.path(currentPair(name))
	if err := os.Remove(link + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link: %w", err)
	}
	if err := os.Symlink(file, link+".new"); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	return nil
}

// follow resolves a symbolic link inside the node, and returns the path of its target on the
// machine.
func (d nodeDirs) follow(inside string) string {
	target, err := os.Readlink(d.path(inside))
	switch {
	case err != nil:
		return d.path(inside)
	case filepath.IsAbs(target):
		return d.path(target)
	}
	return d.path(filepath.Dir(inside), target)
}
