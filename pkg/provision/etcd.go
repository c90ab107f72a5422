// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
	"strings"

	"keelson.dev/keelson/pkg/pki"
)

const (
	etcdQuota = 8 << 30 // maximum size of the database in bytes
	// EtcdClient is the name of the API server's client certificate for etcd below the directory pki, without
	// its extension.
	EtcdClient = "apiserver-etcd-client"
)

// EtcdFiles has the names of etcd's certificates below the directory pki, without the extensions
// .crt and .key. Server and Peer may be the same file.
type EtcdFiles struct{ Authority, Server, Peer string }

// KubeadmEtcdFiles returns the names that kubeadm gives to etcd's certificates.
func KubeadmEtcdFiles() EtcdFiles {
	return EtcdFiles{Authority: "etcd/ca", Server: "etcd/server", Peer: "etcd/peer"}
}

// Etcd describes a member of a separate etcd cluster.
type Etcd struct {
	Name  string
	Store string // directory of the member's data
	Dir   Dir
	Files EtcdFiles
	// Client and Peer have the URLs at which the member listens. It announces the first of each to
	// clients and to other members.
	Client, Peer []string
	// Members has NAME=PEER-URL of each member, with this one.
	Members []string
	// Token is the same for all members of an etcd cluster, and different for different ones.
	Token string
	// Joins is true for a member that was added to an existing etcd cluster.
	Joins bool
}

// Args returns the flags of etcd. Clients and other members need a certificate from etcd's own
// authority.
func (e *Etcd) Args() []string {
	authority := e.Dir.PKI(e.Files.Authority + ".crt")
	out := []string{
		"--name=" + e.Name, "--data-dir=" + e.Store,
		"--logger=zap", "--log-level=warn",
		"--listen-client-urls=" + strings.Join(e.Client, ","), "--advertise-client-urls=" + e.Client[0],
		"--listen-peer-urls=" + strings.Join(e.Peer, ","), "--initial-advertise-peer-urls=" + e.Peer[0],
		"--initial-cluster=" + strings.Join(e.Members, ","), "--initial-cluster-token=" + e.Token,
		fmt.Sprintf("--quota-backend-bytes=%d", etcdQuota), "--tls-min-version=TLS1.2",
		"--client-cert-auth", "--trusted-ca-file=" + authority,
		"--cert-file=" + e.Dir.PKI(e.Files.Server+".crt"), "--key-file=" + e.Dir.PKI(e.Files.Server+".key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + authority,
		"--peer-cert-file=" + e.Dir.PKI(e.Files.Peer+".crt"), "--peer-key-file=" + e.Dir.PKI(e.Files.Peer+".key"),
	}
	if e.Joins {
		out = append(out, "--initial-cluster-state=existing")
	}
	return out
}

// certificates returns etcd's certificates and the API server's client certificate for etcd.
func (f EtcdFiles) certificates(hosts []string) []certificate {
	member := pki.Leaf{Name: "etcd", Hosts: hosts, Client: true}
	out := []certificate{
		{file: f.Server, leaf: member, authority: f.Authority},
		{file: EtcdClient, leaf: pki.Leaf{Name: "kube-apiserver-etcd-client", Client: true}, authority: f.Authority},
	}
	if f.Peer != f.Server {
		out = append(out, certificate{file: f.Peer, leaf: member, authority: f.Authority})
	}
	return out
}
