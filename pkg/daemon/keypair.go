// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// KeyPair is the certificate in two files. It follows when they are replaced.
type KeyPair struct {
	CertFile, KeyFile string

	mu      sync.Mutex
	changed [2]time.Time // modification times of what cert was read from
	cert    *tls.Certificate
}

// Get returns the present certificate; files that cannot be read, being
// replaced maybe, leave the old one in use.
func (k *KeyPair) Get() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var changed [2]time.Time
	for i, path := range []string{k.CertFile, k.KeyFile} {
		if info, err := os.Stat(path); err == nil {
			changed[i] = info.ModTime()
		}
	}
	if k.cert != nil && changed == k.changed {
		return k.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(k.CertFile, k.KeyFile)
	if err == nil {
		k.cert, k.changed = &cert, changed
	}
	if k.cert == nil {
		return nil, fmt.Errorf("read key pair: %w", err)
	}
	return k.cert, nil
}
