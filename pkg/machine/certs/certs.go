// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

// Machine describes the certificates of a machine.
type Machine struct {
	Node *provision.Node
	// Control is the machine's control plane, or nil.
	Control *provision.ControlPlane
	// Incomplete says why a machine that has keys of authorities has no control plane. If it is nil, a command was
	// interrupted.
	Incomplete error
	// EtcdFlags is the path of a file that exists if etcd is a program of its own.
	EtcdFlags string
	// Lock is the path of a file. While it is locked, no other process reads or writes certificates or keys of
	// authorities (see package filelock).
	Lock string

	// request requests a certificate again; see the function of this name. Tests replace it.
	request func(ctx context.Context, client kubernetes.Interface, path, kind string) error
}

// Values of the field Renewal of certificates: the program or the command that replaces a certificate.
const (
	byAgent   = "agent"
	byKubelet = "kubelet"
	byCommand = "ctl certs rotate-ca"
)

func (m *Machine) trust() *provision.Trust {
	if m.Control != nil {
		return m.Control.Trust()
	}
	return m.Node.Trust()
}

// List returns all certificates of the machine, with the problems that they have.
func (m *Machine) List(now time.Time) ([]provision.Certificate, error) {
	files, kubeconfigs := []string{filepath.Join(m.Node.Root, provision.NodeAuthorityFile)}, []string(nil)
	if m.Control != nil {
		var err error
		if files, kubeconfigs, err = m.Control.Dir.CertificateFiles(); err != nil {
			return nil, err
		}
	}
	trust := m.trust()
	var out []provision.Certificate
	for _, f := range files {
		if cert, err := pki.ReadCertificate(f); err == nil && !cert.IsCA {
			out = append(out, renewedBy(byAgent, trust.Check("", f, now))...)
			continue
		}
		out = append(out, renewedBy(byCommand, trust.CheckAuthorities("", f, now)...)...)
	}
	for _, f := range kubeconfigs {
		out = append(out, renewedBy(byAgent, trust.Check("", f, now))...)
	}
	for _, f := range m.Node.Cluster.NodeCertificateFiles() {
		by := byKubelet
		if f == provision.AgentProxyPair {
			by = byAgent
		}
		out = append(out, renewedBy(by, trust.Check(m.Node.Root, f, now))...)
	}
	return out, nil
}

func renewedBy(by string, list ...provision.Certificate) []provision.Certificate {
	for i := range list {
		list[i].Renewal = by
	}
	return list
}

// Renew renews the certificates of the machine's control plane that expire soon.
func (m *Machine) Renew(clk clock.Clock) error {
	if m.Control == nil {
		return nil
	}
	return filelock.While(m.Lock, func() error { return m.Control.Renew(clk) })
}

// Reissue issues all certificates of the machine again, except those of authorities. node is a client with
// the kubelet's credentials. Programs read the new files by themselves.
func (m *Machine) Reissue(ctx context.Context, node kubernetes.Interface, clk clock.Clock) error {
	if m.Control != nil {
		if err := filelock.While(m.Lock, func() error { return m.Control.Reissue(clk) }); err != nil {
			return err
		}
	}
	return m.requestNode(ctx, node, func(string) bool { return false })
}

// signedBy reports whether an authority has signed the first certificate in a file.
func signedBy(file string, authority *x509.Certificate) bool {
	cert, err := pki.ReadCertificate(file)
	return err == nil && cert.CheckSignatureFrom(authority) == nil
}
