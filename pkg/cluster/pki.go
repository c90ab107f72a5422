// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

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
	authorities := map[string]*pki.Authority{}
	for file, name := range authorityNames(c) {
		if file == kubeletAuthority && force && !exists(d.pki(file+".crt")) {
			// An older version created the cluster without this authority. The authority is created
			// at the cluster's next start.
			continue
		}
		var err error
		if authorities[file], err = pki.OpenAuthority(d.pki(file), name, clk); err != nil {
			return err
		}
	}
	for _, want := range controlCertificates(c) {
		crt, key := d.pki(want.file+".crt"), d.pki(want.file+".key")
		if !force && pki.Current(crt, key, clk) {
			continue
		}
		if err := authorities[want.authority].IssueTo(crt, key, want.leaf, clk); err != nil {
			return fmt.Errorf("certificate %s: %w", want.file, err)
		}
	}
	return pki.ServiceAccountKeys(d.pki("sa"))
}

// control describes a certificate of the control plane.
type control struct {
	file      string
	leaf      pki.Leaf
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
		{file: "apiserver", leaf: pki.Leaf{Name: "kube-apiserver", Hosts: serverHosts(c)}, authority: "ca"},
		// The API server's RBAC rules give the user with this name access to kubelets.
		{file: "apiserver-kubelet-client", leaf: pki.Leaf{Name: "kube-apiserver-kubelet-client", Client: true},
			authority: "ca"},
		{file: "front-proxy-client", leaf: pki.Leaf{Name: "front-proxy-client", Client: true}, authority: "front-proxy-ca"},
		{file: controllerManager, leaf: pki.Leaf{Name: "kube-controller-manager", Hosts: local}, authority: "ca"},
		{file: scheduler, leaf: pki.Leaf{Name: "kube-scheduler", Hosts: local}, authority: "ca"},
		{file: controllerManager + "-client", leaf: pki.Leaf{Name: "system:kube-controller-manager", Client: true},
			authority: "ca"},
		{file: scheduler + "-client", leaf: pki.Leaf{Name: "system:kube-scheduler", Client: true}, authority: "ca"},
	}
	if c.replicated() {
		out = append(out, replicatedCertificates()...)
	}
	return out
}

// servingAuthority reads the authority that signs kubelets' serving certificates. If an older
// version started the cluster without this authority, it returns the cluster's main authority,
// which signs these certificates until the next start.
func (d dirs) servingAuthority() (*pki.Authority, error) {
	if !exists(d.pki(kubeletAuthority + ".crt")) {
		return pki.ReadAuthority(d.pki("ca"))
	}
	return pki.ReadAuthority(d.pki(kubeletAuthority))
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

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
