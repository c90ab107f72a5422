// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestStall checks in virtual time that a connection fails when nothing moves, and not while something moves.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		w := &watched{near}
		defer w.Close()
		began := time.Now()
		read := make(chan error, 1)
		go func() { // as a client waits for an answer while it sends a request
			_, err := w.Read(make([]byte, 1))
			read <- err
		}()
		go io.CopyN(io.Discard, far, 3) // the writes below report errors
		const pause = stallTimeout * 3 / 4
		for range 3 {
			<-time.After(pause)
			if _, err := w.Write([]byte("x")); err != nil {
				t.Error(time.Since(began), err)
			}
		}
		if err, took := <-read, time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != 3*pause+stallTimeout {
			t.Errorf("the read ended after %s: %v", took, err)
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the other end does not read:", err)
		}
	})
}
