// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
)

// KeyPair is a TLS certificate and its key in two files. It reloads the files after they are
// replaced.
type KeyPair struct {
	CertFile, KeyFile string

	mu   sync.Mutex
	read [2]os.FileInfo // state of the two files when cert was read
	cert *tls.Certificate
}

// Get returns the current certificate. If the files cannot be read, for example while they are
// being replaced, it returns the previous certificate.
func (k *KeyPair) Get() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var present [2]os.FileInfo
	for i, path := range []string{k.CertFile, k.KeyFile} {
		if info, err := os.Stat(path); err == nil {
			present[i] = info
		}
	}
	if k.cert != nil && same(present[0], k.read[0]) && same(present[1], k.read[1]) {
		return k.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(k.CertFile, k.KeyFile)
	if err == nil {
		k.cert, k.read = &cert, present
	}
	if k.cert == nil {
		return nil, fmt.Errorf("read key pair: %w", err)
	}
	return k.cert, nil
}

// same reports whether a file is unchanged. The modification time alone does not show that: a file
// can be replaced within the resolution of the time, or by an older file.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
