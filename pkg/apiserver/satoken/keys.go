// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"context"
	"crypto"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/tokenkey"
)

// KeySource returns the public keys that verify service account tokens.
type KeySource interface {
	// Candidates returns the keys that may have signed a token with the given key ID, or all keys if
	// the ID is empty.
	Candidates(ctx context.Context, id string) []crypto.PublicKey
	// Published returns the keys to publish, and for how long clients may cache them.
	Published() (jose.JSONWebKeySet, time.Duration)
}

// Keys are public keys that verify tokens. They are immutable.
type Keys struct {
	all  []crypto.PublicKey
	byID map[string][]crypto.PublicKey
	set  jose.JSONWebKeySet
}

// LoadKeys reads public keys from PEM files. A private key counts as its public key. Duplicates are
// dropped.
func LoadKeys(files ...string) (*Keys, error) {
	k := &Keys{byID: map[string][]crypto.PublicKey{}}
	for _, file := range files {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if err := k.add(key); err != nil {
				return nil, fmt.Errorf("service account key in %s: %w", file, err)
			}
		}
	}
	return k, nil
}

func (k *Keys) add(key crypto.PublicKey) error {
	id, err := tokenkey.ID(key)
	if err != nil {
		return err
	}
	if len(k.byID[id]) > 0 {
		return nil
	}
	alg, err := tokenkey.Algorithm(key)
	if err != nil {
		return err
	}
	k.all = append(k.all, key)
	k.byID[id] = append(k.byID[id], key)
	k.set.Keys = append(k.set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(alg), Use: "sig"})
	return nil
}

func (k *Keys) candidates(id string) []crypto.PublicKey {
	if id == "" {
		return k.all
	}
	return k.byID[id]
}

const (
	// publishedFor is how long clients may cache keys from files.
	publishedFor = time.Hour
	// keyReload is how often KeyFiles.Run reads the files again.
	keyReload = time.Minute
)

// KeyFiles are the keys in files. Run reads the files again every keyReload, so an operator can add
// a new key before tokens are signed with it, and remove an old key after its tokens have expired,
// without a restart.
type KeyFiles struct {
	files   []string
	current atomic.Pointer[Keys]
}

// LoadKeyFiles reads the files with the public keys.
func LoadKeyFiles(files ...string) (*KeyFiles, error) {
	k := &KeyFiles{files: files}
	return k, k.Reload()
}

// Reload reads the files with the public keys again. If that fails, the previous keys stay in use.
func (k *KeyFiles) Reload() error {
	keys, err := LoadKeys(k.files...)
	if err != nil {
		return err
	}
	if len(keys.all) == 0 {
		return fmt.Errorf("service account keys: none in %q", k.files)
	}
	k.current.Store(keys)
	return nil
}

// Run reads the files again every keyReload, until ctx is done.
func (k *KeyFiles) Run(ctx context.Context, clk clock.Clock, log *slog.Logger) {
	ticker := clk.NewTicker(keyReload)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := k.Reload(); err != nil {
				log.Error("Failed to reload service account keys", "err", err)
			}
		}
	}
}

// Candidates implements KeySource.
func (k *KeyFiles) Candidates(_ context.Context, id string) []crypto.PublicKey {
	return k.current.Load().candidates(id)
}

// Published implements KeySource.
func (k *KeyFiles) Published() (jose.JSONWebKeySet, time.Duration) {
	return k.current.Load().set, publishedFor
}
