// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// TestLock checks that only one holder has a lock at a time, and that Lock waits for it.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	var free atomic.Bool
	locked := make(chan error)
	go func() {
		second, err := Lock(path)
		if err == nil {
			defer second()
			if !free.Load() {
				err = ErrLocked
			}
		}
		locked <- err
	}()
	free.Store(true)
	unlock()
	if err := <-locked; err != nil {
		t.Errorf("lock after unlock: %v", err)
	}
	if _, err := TryLock(filepath.Join(path, "none")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("lock below a file: %v", err)
	}
}
