// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/atomicfile"
)

const keyLength = 32

// ErrForeignEncryption is returned for a file with encryption keys that this package did not write.
var ErrForeignEncryption = errors.New(
	"the encryption configuration was not written by ctl (secretbox, for secrets); rotate its keys by hand")

// EncryptionKeys is the content of encryption.yaml: the keys with which the API server encrypts
// secrets in the store. The file also records the state of a key rotation:
//
//   - If it has one key and does not permit unencrypted secrets, no rotation is in progress, and all
//     secrets are encrypted with this key.
//   - If it has several keys or permits unencrypted secrets, a rotation is in progress. New values are
//     encrypted with the first key. Older values may be encrypted with the other keys or unencrypted.
type EncryptionKeys struct {
	Keys []apiserverv1.Key // the current key first
	// Plain is true if the store may still contain unencrypted secrets.
	Plain bool
}

// Settled reports whether no rotation is in progress, so that all secrets are encrypted with one
// key.
func (e *EncryptionKeys) Settled() bool { return len(e.Keys) == 1 && !e.Plain }

// Names returns the names of the keys.
func (e *EncryptionKeys) Names() []string {
	var out []string
	for _, k := range e.Keys {
		out = append(out, k.Name)
	}
	return out
}

// Add creates an encryption key and makes it the current key.
func (e *EncryptionKeys) Add() error {
	name, err := letters(8)
	if err != nil {
		return err
	}
	secret := make([]byte, keyLength)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("encryption key: %w", err)
	}
	e.Keys = slices.Insert(e.Keys, 0, apiserverv1.Key{Name: name, Secret: base64.StdEncoding.EncodeToString(secret)})
	return nil
}

// ReadEncryptionKeys reads a file that [EncryptionKeys.Write] has written.
func ReadEncryptionKeys(file string) (*EncryptionKeys, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("encryption keys: %w", err)
	}
	e, err := ParseEncryptionKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
}

// ParseEncryptionKeys returns the keys in the content of a file that [EncryptionKeys.Write] has written.
func ParseEncryptionKeys(data []byte) (*EncryptionKeys, error) {
	cfg := apiserverv1.EncryptionConfiguration{}
	if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
		return nil, err
	}
	if len(cfg.Resources) != 1 || !slices.Equal(cfg.Resources[0].Resources, []string{"secrets"}) {
		return nil, ErrForeignEncryption
	}
	e := &EncryptionKeys{}
	for i, p := range cfg.Resources[0].Providers {
		switch {
		case i == 0 && p.Secretbox != nil:
			e.Keys = p.Secretbox.Keys
		case i == 1 && p.Identity != nil:
			e.Plain = true
		default:
			return nil, ErrForeignEncryption
		}
	}
	if len(e.Keys) == 0 {
		return nil, ErrForeignEncryption
	}
	return e, nil
}

// Write stores the keys in the file, and returns the hash that the API server will report for the
// file. The file is synced to disk before the API server can use a new key, because losing a key
// would lose all secrets that are encrypted with it.
func (e *EncryptionKeys) Write(file string) (hash string, err error) {
	providers := []apiserverv1.ProviderConfiguration{{Secretbox: &apiserverv1.SecretboxConfiguration{Keys: e.Keys}}}
	if e.Plain {
		providers = append(providers, apiserverv1.ProviderConfiguration{Identity: &apiserverv1.IdentityConfiguration{}})
	}
	data, err := yaml.Marshal(apiserverv1.EncryptionConfiguration{
		TypeMeta:  metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"},
		Resources: []apiserverv1.ResourceConfiguration{{Resources: []string{"secrets"}, Providers: providers}},
	})
	if err != nil {
		return "", fmt.Errorf("encode encryption keys: %w", err)
	}
	if err := atomicfile.WriteDurably(file, data, 0o600); err != nil {
		return "", fmt.Errorf("encryption keys: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data)), nil
}
