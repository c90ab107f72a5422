// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filelock locks files against other processes. The system unlocks a file when the process that has
// locked it ends, for whatever reason.
package filelock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is the error of TryLock if another process has locked the file.
var ErrLocked = errors.New("another process has locked it")

// Lock locks the file at path, which it creates if it does not exist. It waits until no other process has locked
// it. The file must not be removed while processes use it.
func Lock(path string) (unlock func(), err error) { return lock(path, unix.LOCK_EX) }

// TryLock is Lock, but it returns ErrLocked instead of waiting.
func TryLock(path string) (unlock func(), err error) {
	unlock, err = lock(path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return unlock, err
}

// While calls f while it has the lock (see Lock).
func While(path string, f func() error) error {
	unlock, err := Lock(path)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

func lock(path string, how int) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(file.Fd()), how)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil // it also unlocks the file
}
