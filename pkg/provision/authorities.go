// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/pki"
)

// Authorities has what all control planes of a cluster have in common: the content of the files with
// the certificate authorities, their keys, the keys for service accounts and the encryption keys, by
// their paths below the control plane's directory.
type Authorities map[string][]byte

// authorityFiles returns the paths of the files in [Authorities].
func (p *ControlPlane) authorityFiles() []string {
	out := []string{"encryption.yaml", "pki/sa.key", "pki/sa.pub"}
	for _, name := range slices.Sorted(maps.Keys(p.authorities())) {
		out = append(out, "pki/"+name+".crt", "pki/"+name+".key")
	}
	return out
}

// crossFiles returns the paths of the files in [Authorities] that exist only after an authority was
// replaced.
func (p *ControlPlane) crossFiles() (out []string) {
	for name := range p.authorities() {
		out = append(out, "pki/"+name+crossEnding)
	}
	return out
}

// ReadAuthorities reads the authorities of the control plane. It returns an error if one is missing.
func (p *ControlPlane) ReadAuthorities() (Authorities, error) {
	out := Authorities{}
	for _, name := range p.crossFiles() {
		data, err := os.ReadFile(p.Dir.file(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		out[name] = data
	}
	for _, name := range p.authorityFiles() {
		data, err := os.ReadFile(p.Dir.file(name))
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		out[name] = data
	}
	return out, nil
}

// WriteAuthorities writes the authorities of a cluster for a control plane that joins it. Existing files
// are replaced. It writes nothing if one of the files is missing in a.
func (p *ControlPlane) WriteAuthorities(a Authorities) error {
	files := p.authorityFiles()
	for _, name := range files {
		if len(a[name]) == 0 {
			return fmt.Errorf("authorities: %w: %s", errIncomplete, name)
		}
	}
	for _, name := range p.crossFiles() {
		if len(a[name]) > 0 {
			files = append(files, name)
		}
	}
	for _, name := range files {
		if err := atomicfile.WriteDurably(p.Dir.file(name), a[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

var (
	errIncomplete = errors.New("the cluster's first control plane has not stored a file")
	errSealed     = errors.New("the third part of the token does not fit the stored authorities: copy the token again, " +
		"or make a new one with \"ctl token create --control-plane\"")
)

// seal encrypts the authorities with AES-GCM. A key is used only once.
func (a Authorities) seal(key []byte) ([]byte, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode authorities: %w", err)
	}
	aead, err := pki.NewAEAD(key)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, text, nil), nil
}

// openAuthorities decrypts what seal has encrypted.
func openAuthorities(sealed, key []byte) (Authorities, error) {
	aead, err := pki.NewAEAD(key)
	if err != nil {
		return nil, err
	}
	text, err := aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, errSealed
	}
	var out Authorities
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("decode authorities: %w", err)
	}
	return out, nil
}
