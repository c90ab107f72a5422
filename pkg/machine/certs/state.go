// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"keelson.dev/keelson/pkg/pki"
)

// Names of objects and of an annotation.
const (
	// configMap is the ConfigMap in kube-system with the state.
	configMap = "keelson-authorities"
	// keysSecret is the Secret in kube-system with the keys of new authorities.
	keysSecret = "keelson-authority-keys"
	// Annotation of a Node has the hash of the state that its machine has applied.
	Annotation = "keelson.dev/authorities"
)

// generation is what all machines must agree on about the authorities that follow each other under one
// file name.
type generation struct {
	bundle []*x509.Certificate // those that are trusted
	cross  []*x509.Certificate // see package pki
	signer *x509.Certificate   // that of bundle which signs
}

// state has the generations by the file name of the authority, such as ca and etcd/ca.
type state map[string]*generation

// Endings of the keys in the ConfigMap. The keys begin with the name of the file, with dots instead of
// slashes.
const (
	bundleEnding = ".crt"
	crossEnding  = "-cross.crt"
	signerEnding = ".signer"
)

func keyOf(name string) string    { return strings.ReplaceAll(name, "/", ".") }
func nameOf(dotted string) string { return strings.ReplaceAll(dotted, ".", "/") }

// fingerprint returns the SHA-256 hash of a certificate in hexadecimal digits.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// data returns the state in the form of the ConfigMap's data.
func (s state) data() map[string]string {
	out := map[string]string{}
	for name, g := range s {
		out[keyOf(name)+bundleEnding] = string(pki.Encode(g.bundle...))
		out[keyOf(name)+crossEnding] = string(pki.Encode(g.cross...))
		out[keyOf(name)+signerEnding] = fingerprint(g.signer)
	}
	return out
}

// hash returns the hash of the state.
func (s state) hash() string {
	h, data := sha256.New(), s.data()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s %d %s", len(key), key, len(data[key]), data[key])
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

var (
	errNoSigner = errors.New("the authority that signs is not trusted")
	errEmpty    = errors.New("no authorities")
)

// parse returns the state in a ConfigMap.
func parse(m *v1.ConfigMap) (state, error) {
	out := state{}
	for key, fingerprinted := range m.Data {
		dotted, ok := strings.CutSuffix(key, signerEnding)
		if !ok {
			continue
		}
		g := &generation{}
		var err error
		if g.bundle, err = cert.ParseCertsPEM([]byte(m.Data[dotted+bundleEnding])); err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %s: %w", m.Name, dotted, err)
		}
		if text := m.Data[dotted+crossEnding]; text != "" {
			if g.cross, err = cert.ParseCertsPEM([]byte(text)); err != nil {
				return nil, fmt.Errorf("ConfigMap %s: %s: %w", m.Name, dotted, err)
			}
		}
		at := slices.IndexFunc(g.bundle, func(c *x509.Certificate) bool { return fingerprint(c) == fingerprinted })
		if at < 0 {
			return nil, fmt.Errorf("ConfigMap %s: %s: %w", m.Name, dotted, errNoSigner)
		}
		g.signer = g.bundle[at]
		out[nameOf(dotted)] = g
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("ConfigMap %s: %w", m.Name, errEmpty)
	}
	return out, nil
}

// object returns the ConfigMap with the state.
func (s state) object() *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: s.data()}
}

// present returns the state of a control plane's files.
func (m *Machine) present() (state, error) {
	out := state{}
	for _, name := range m.Control.AuthorityNames() {
		base := m.Control.Dir.PKI(name)
		a, err := pki.ReadAuthority(base)
		if err != nil {
			return nil, err
		}
		bundle, err := pki.ReadCertificates(base + bundleEnding)
		if err != nil {
			return nil, err
		}
		out[name] = &generation{bundle: bundle, cross: a.AllCross(), signer: a.Cert}
	}
	return out, nil
}

// same reports whether two certificates are for the same key.
func same(a, b *x509.Certificate) bool {
	return bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo)
}

func contains(list []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(list, c.Equal)
}
