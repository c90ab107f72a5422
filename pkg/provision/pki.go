// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// IssueCertificates creates the control plane's keys and certificates that are missing, the
// authorities included, with the file names that /etc/kubernetes/pki usually has. It renews
// certificates that expire soon, or that another authority has signed. If force is true, it reissues all
// certificates except the authorities'.
//
// A control plane that joins a cluster needs the files of the cluster's authorities and of the keys
// for service accounts (sa.pub and sa.key) first. Otherwise its certificates would be worthless.
func (p *ControlPlane) IssueCertificates(force bool, clk clock.Clock) error {
	if err := errors.Join(os.MkdirAll(string(p.Dir), 0o755), os.MkdirAll(p.Dir.PKI(""), 0o700)); err != nil {
		return fmt.Errorf("PKI directory: %w", err)
	}
	authorities := map[string]*pki.Authority{}
	for file, name := range p.authorities() {
		if file == ServingAuthority && force && !exists(p.Dir.PKI(file+".crt")) {
			// An older version created the cluster without this authority. The authority is created
			// at the cluster's next start.
			continue
		}
		var err error
		if authorities[file], err = pki.OpenAuthority(p.Dir.PKI(file), name, p.Cluster.Life.Authority, clk); err != nil {
			return err
		}
	}
	for _, want := range p.certificates() {
		crt, key := p.Dir.PKI(want.file+".crt"), p.Dir.PKI(want.file+".key")
		by := authorities[want.authority]
		if !force && by.Current(crt, key, clk) {
			continue
		}
		want.leaf.Life = p.Cluster.Life.Leaf
		if err := by.IssueTo(crt, key, want.leaf, clk); err != nil {
			return fmt.Errorf("certificate %s: %w", want.file, err)
		}
	}
	return pki.ServiceAccountKeys(p.Dir.PKI("sa"))
}

// certificate describes a certificate of the control plane.
type certificate struct {
	file      string
	leaf      pki.Leaf
	authority string // file name of the authority that signs the certificate
}

// ServingAuthority is the file name of the authority that signs kubelets' serving certificates. The
// API server trusts it for connections to kubelets. Clients of the API server do not trust it, so that a node
// cannot impersonate the API server, even if it obtains a certificate for another name.
const ServingAuthority = "kubelet-ca"

// authorities returns the subjects of the cluster's certificate authorities by file name. Front
// proxies, kubelets and etcd have separate authorities, so that a certificate is trusted for one
// purpose only.
func (p *ControlPlane) authorities() map[string]string {
	names := map[string]string{"ca": "kubernetes", "front-proxy-ca": "front-proxy-ca", ServingAuthority: ServingAuthority}
	if etcd := p.EtcdFiles.Authority; etcd != "" {
		names[etcd] = "etcd-ca"
	}
	return names
}

// AuthorityNames returns the file names of the cluster's authorities below the directory pki, sorted.
func (p *ControlPlane) AuthorityNames() []string { return slices.Sorted(maps.Keys(p.authorities())) }

// certificates returns the certificates of the control plane.
func (p *ControlPlane) certificates() []certificate {
	local := with(append([]string{"localhost", "::1"}, p.Hosts.Managers...), p.Local)
	out := []certificate{
		// A machine that joins knows only the hash of the authority, so the server presents it.
		{file: APIServer, leaf: pki.Leaf{Name: "kube-apiserver", Hosts: p.serverHosts(), WithAuthority: true},
			authority: "ca"},
		// The API server's RBAC rules give the user with this name access to kubelets.
		{file: "apiserver-kubelet-client", leaf: pki.Leaf{Name: "kube-apiserver-kubelet-client", Client: true},
			authority: "ca"},
		{file: "front-proxy-client", leaf: pki.Leaf{Name: "front-proxy-client", Client: true}, authority: "front-proxy-ca"},
		{file: ControllerManager, leaf: pki.Leaf{Name: "kube-controller-manager", Hosts: local}, authority: "ca"},
		{file: Scheduler, leaf: pki.Leaf{Name: "kube-scheduler", Hosts: local}, authority: "ca"},
		{file: ControllerManager + "-client", leaf: pki.Leaf{Name: "system:kube-controller-manager", Client: true},
			authority: "ca"},
		{file: Scheduler + "-client", leaf: pki.Leaf{Name: "system:kube-scheduler", Client: true}, authority: "ca"},
	}
	if p.EtcdFiles.Authority != "" {
		out = append(out, p.EtcdFiles.certificates(p.Hosts.Etcd)...)
	}
	return out
}

// serverHosts returns all names and addresses by which clients connect to the API server.
func (p *ControlPlane) serverHosts() []string {
	out := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." +
		p.Cluster.Domain, "localhost", "127.0.0.1", "::1"}
	for _, f := range p.Cluster.Families {
		out = append(out, f.API().String())
	}
	return with(append(out, p.Hosts.APIServer...), p.Advertise)
}

// with returns a list that contains a host.
func with(hosts []string, host string) []string {
	if slices.Contains(hosts, host) {
		return hosts
	}
	return append(hosts, host)
}

// servingAuthority returns the file name of the authority that signs kubelets' serving certificates.
// If an older version started the cluster without this authority, it is the cluster's main
// authority, which signs these certificates until the next start.
func (d Dir) servingAuthority() string {
	if !exists(d.PKI(ServingAuthority + ".crt")) {
		return "ca"
	}
	return ServingAuthority
}
