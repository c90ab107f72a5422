// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
)

// TestSnapshot takes a snapshot of an embedded and of a separate etcd. It checks the hash at the end, and
// that the snapshot has what was written before.
func TestSnapshot(t *testing.T) {
	for _, name := range []string{"embedded", "separate"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, name == "separate")
			value := strings.Repeat("x", 100_000) + "end of the value"
			if r, err := s.Put(t.Context(), "/registry/a", []byte(value), 0, 0); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			var out bytes.Buffer
			if err := s.Snapshot(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
			data := out.Bytes()
			if len(data)%512 != sha256.Size {
				t.Fatalf("%d bytes, without a hash", len(data))
			}
			at := len(data) - sha256.Size
			if got := sha256.Sum256(data[:at]); !bytes.Equal(got[:], data[at:]) {
				t.Error("wrong hash")
			}
			if !bytes.Contains(data, []byte(value)) {
				t.Error("the value is missing")
			}
			if err := s.Snapshot(t.Context(), failing{}); !errors.Is(err, errWrite) {
				t.Errorf("the error of the writer: %v", err)
			}
		})
	}
}

// open starts an etcd and returns a store on it.
func open(t *testing.T, separate bool) *etcd.Store {
	t.Helper()
	var s *etcd.Store
	var err error
	if separate {
		server, address := serve(t)
		t.Cleanup(server.Close)
		s, err = etcd.Dial(etcd.External{Endpoints: []string{address}, Clock: clock.Real(),
			Log: slog.New(slog.DiscardHandler)})
	} else {
		s, err = embedded.Start(t.Context(), etcd.Embedded{Dir: t.TempDir(), UnsafeNoFsync: true,
			Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var errWrite = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errWrite }
