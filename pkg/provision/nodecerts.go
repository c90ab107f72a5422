// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/nodeclaims"
	"keelson.dev/keelson/pkg/pki"
)

// The certificates are written to the directory in which the kubelet stores the certificates that
// it requests itself. NAME-current.pem is a link to the latest file with a certificate and its key.
const (
	kubeletClient = "kubelet-client"
	kubeletServer = "kubelet-server"
)

// IsServingPair reports whether a file has a kubelet's serving certificate.
func IsServingPair(file string) bool {
	return filepath.Base(file) == filepath.Base(currentPair(kubeletServer))
}

func currentPair(name string) string { return filepath.Join(kubeletCerts, name+"-current.pem") }

// kubeletLeaf returns the description of a certificate for the node's kubelet: the serving
// certificate if serving is true, and otherwise the client certificate.
func (n *Node) kubeletLeaf(serving bool) pki.Leaf {
	l := pki.Leaf{Name: "system:node:" + n.Name, Organizations: []string{"system:nodes"}, Client: !serving,
		Life: n.Cluster.Life.Leaf}
	if serving {
		// These are exactly the names and addresses that the kubelet requests when it renews the
		// certificate.
		l.Hosts = append([]string{n.Name}, n.Addresses...)
	}
	return l
}

// proxyLeaf returns the description of the client certificate of the node's proxy.
func (n *Node) proxyLeaf() pki.Leaf {
	return pki.Leaf{Name: nodeclaims.ProxyUser(n.Name), Organizations: []string{nodeclaims.ProxyGroup}, Client: true}
}

// WriteKubeconfigs writes the certificate of the cluster's authority, and the kubeconfig files of the
// kubelet and the proxy. These refer to all certificates by file name. If the node joins with a token,
// the kubelet writes its kubeconfig itself.
func (n *Node) WriteKubeconfigs(ca []byte) error {
	if err := atomicfile.WriteDurably(n.path(nodeCA), ca, 0o644); err != nil {
		return err
	}
	if pair := currentPair(kubeletClient); !n.Joins {
		cfg := n.Cluster.fileKubeconfig(n.Server, nodeCA, n.kubeletLeaf(false).Name, fileUser(pair, pair))
		if err := saveKubeconfig(cfg, n.path(KubeletKubeconfig)); err != nil {
			return err
		}
	}
	user := fileUser(ProxyCertificate+".crt", ProxyCertificate+".key")
	if n.Cluster.Machines {
		user = fileUser(AgentProxyPair, AgentProxyPair)
	}
	return saveKubeconfig(n.Cluster.fileKubeconfig(n.Server, nodeCA, n.proxyLeaf().Name, user), n.path(proxyConf))
}

// IssueCertificates issues the certificates of the node's programs that are missing or expire soon,
// or all of them if force is true. The authorities and their keys are in the control plane's
// directory. It skips the kubelet's certificates if the node joins with a token, because that
// kubelet requests its own certificates.
func (n *Node) IssueCertificates(authorities Dir, force bool, clk clock.Clock) error {
	signer, err := pki.ReadAuthority(authorities.PKI("ca"))
	if err != nil {
		return err
	}
	serving, err := pki.ReadAuthority(authorities.PKI(authorities.servingAuthority()))
	if err != nil {
		return err
	}
	if err := n.dropServing(serving); err != nil {
		return err
	}
	for name, by := range map[string]*pki.Authority{kubeletClient: signer, kubeletServer: serving} {
		if file := follow(n.Root, currentPair(name)); n.Joins || !force && by.Current(file, file, clk) {
			continue
		}
		if err := n.issuePair(by, name, clk); err != nil {
			return fmt.Errorf("certificate %s: %w", name, err)
		}
	}
	if n.Cluster.Machines {
		return nil // the agent requests the proxy's certificate
	}
	return n.renewProxy(signer, force, clk)
}

// renewProxy issues the certificate of the node's proxy if it is due, or if its subject is outdated.
// In older versions, the certificates of all proxies had the same subject.
func (n *Node) renewProxy(by *pki.Authority, force bool, clk clock.Clock) error {
	cert, key, leaf := n.path(ProxyCertificate+".crt"), n.path(ProxyCertificate+".key"), n.proxyLeaf()
	if !force && by.Current(cert, key, clk) {
		if present, err := pki.ReadCertificate(cert); err == nil && present.Subject.CommonName == leaf.Name {
			return nil
		}
	}
	if err := by.IssueTo(cert, key, leaf, clk); err != nil {
		return fmt.Errorf("certificate of the proxy: %w", err)
	}
	return nil
}

// dropServing removes a kubelet's serving certificate if it was not signed by the given authority,
// as in clusters of older versions. A kubelet that starts without a serving certificate requests a
// new one.
func (n *Node) dropServing(by *pki.Authority) error {
	cert, err := pki.ReadCertificate(follow(n.Root, currentPair(kubeletServer)))
	if err != nil || cert.CheckSignatureFrom(by.Cert) == nil {
		return nil // there is no certificate, or the right authority has signed it
	}
	if err := os.Remove(n.path(currentPair(kubeletServer))); err != nil {
		return fmt.Errorf("old serving certificate: %w", err)
	}
	return nil
}

// issuePair issues a certificate and writes it into the kubelet's certificate directory, in the form
// in which the kubelet stores its own certificates.
func (n *Node) issuePair(by *pki.Authority, name string, clk clock.Clock) error {
	cert, key, err := by.Issue(n.kubeletLeaf(name == kubeletServer), clk)
	if err != nil {
		return err
	}
	file := fmt.Sprintf("%s-%s.pem", name, clk.Now().UTC().Format("2006-01-02-15-04-05"))
	if err := atomicfile.WriteDurably(n.path(kubeletCerts, file), append(cert, key...), 0o600); err != nil {
		return err
	}
	link := n.path(currentPair(name))
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
