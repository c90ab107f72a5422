// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

// mainAuthority is the file name of the authority that all machines know.
const mainAuthority = "ca"

// secrets reads the Secret of new authorities. It returns nil if there is none.
type secrets func(context.Context) (*v1.Secret, error)

// apply changes the machine's files to a state: the authorities, and all certificates that another
// authority has signed. node is a client with the kubelet's credentials.
func (m *Machine) apply(ctx context.Context, s state, keys secrets, node kubernetes.Interface, clk clock.Clock) error {
	if err := filelock.While(m.Lock, func() error { return m.applyAuthorities(ctx, s, keys, clk) }); err != nil {
		return err
	}
	right := func(file string) bool { return signedBy(file, s.signerOf(file)) }
	if err := m.requestNode(ctx, node, right); err != nil {
		return err
	}
	for _, file := range m.Node.Cluster.NodeCertificateFiles() {
		if path := filepath.Join(m.Node.Root, file); !right(path) {
			return fmt.Errorf("%s: %w", path, errOldSigner)
		}
	}
	return nil
}

// errOldSigner means that the controller manager does not use the new authority yet.
var errOldSigner = errors.New("the cluster still signs with another authority")

// errUnknown means that the description of the machine is older than its separate etcd. If the machine
// skipped the authority and reported that, the key would be deleted before the machine has it.
var errUnknown = errors.New("etcd was separated from the API server a moment ago")

// applyAuthorities writes the files with authorities and the control plane's certificates.
func (m *Machine) applyAuthorities(ctx context.Context, s state, keys secrets, clk clock.Clock) error {
	if m.Control == nil {
		return m.trustMain(s)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains(m.Control.AuthorityNames(), name) {
			if _, err := os.Stat(m.EtcdFlags); err == nil {
				return fmt.Errorf("%s: %w", name, errUnknown)
			}
			continue // etcd is a part of the API server
		}
		if err := m.adopt(ctx, name, s[name], keys); err != nil {
			return err
		}
	}
	return m.Control.Renew(clk)
}

// errIncomplete means that a machine has keys of authorities, but no control plane that uses them.
var errIncomplete = errors.New("the control plane of this machine is not complete; repeat the command that was " +
	"interrupted, for example \"ctl restore\"")

// trustMain writes the file with the authorities of a machine without a control plane. A control plane has
// a file with the same name, which must have the certificate of its key.
func (m *Machine) trustMain(s state) error {
	file := filepath.Join(m.Node.Root, provision.NodeAuthorityFile)
	if _, err := os.Stat(strings.TrimSuffix(file, bundleEnding) + keyEnding); err == nil {
		return cmp.Or(m.Incomplete, errIncomplete)
	}
	if g := s[mainAuthority]; g != nil {
		return replace(file, g.bundle, 0o644)
	}
	return nil
}

// signerOf returns the authority that must have signed a certificate of a kubelet or a proxy.
func (s state) signerOf(file string) *x509.Certificate {
	if g := s[provision.ServingAuthority]; g != nil && provision.IsServingPair(file) {
		return g.signer
	}
	if g := s[mainAuthority]; g != nil {
		return g.signer
	}
	return &x509.Certificate{}
}

// adopt changes the files of one authority of a control plane. Each file is replaced as a whole, and
// after each of them the files belong together: the key is always that of a trusted authority.
func (m *Machine) adopt(ctx context.Context, name string, g *generation, keys secrets) error {
	base := m.Control.Dir.PKI(name)
	has, err := pki.ReadAuthority(base)
	if err != nil {
		return err
	}
	next, err := m.successor(ctx, name, has, g, keys)
	if err != nil {
		return err
	}
	if err := replaceCross(base+crossEnding, g.cross); err != nil {
		return err
	}
	if !same(has.Cert, g.signer) {
		old, err := pki.ReadCertificates(base + bundleEnding)
		if err != nil {
			return err
		}
		if err := replace(base+bundleEnding, union(old, g.bundle), 0o644); err != nil {
			return err
		}
		if err := next.WriteKey(base); err != nil {
			return err
		}
	}
	return replace(base+bundleEnding, g.bundle, 0o644)
}

// successor returns the authority that will sign, or already signs in the cluster, after the one that
// signs on this machine, or nil if there is none. A control plane that cannot get its key must not
// report that it is ready for it.
func (m *Machine) successor(ctx context.Context, name string, has *pki.Authority, g *generation, keys secrets) (
	*pki.Authority, error) {
	var expected *x509.Certificate
	switch {
	case !same(has.Cert, g.signer):
		expected = g.signer
	case len(g.bundle) > 1 && !g.bundle[len(g.bundle)-1].Equal(g.signer):
		expected = g.bundle[len(g.bundle)-1]
	default:
		return nil, nil
	}
	secret, err := keys(ctx)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, fmt.Errorf("%s: %w", name, errNoKey)
	}
	next, err := open(secret, name, has)
	if err != nil {
		return nil, err
	}
	if !next.Cert.Equal(expected) {
		return nil, fmt.Errorf("%s: %w", name, errNoKey)
	}
	return next, nil
}

// union returns the certificates of both lists.
func union(a, b []*x509.Certificate) []*x509.Certificate {
	out := slices.Clone(a)
	for _, c := range b {
		if !contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// replace writes certificates to a file if it has others.
func replace(file string, certs []*x509.Certificate, mode os.FileMode) error {
	want := pki.Encode(certs...)
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, want) {
		return nil
	}
	return atomicfile.WriteDurably(file, want, mode)
}

// replaceCross writes cross certificates to a file, or removes it if there are none.
func replaceCross(file string, certs []*x509.Certificate) error {
	if len(certs) > 0 {
		return replace(file, certs, 0o644)
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("cross certificates: %w", err)
	}
	return nil
}
