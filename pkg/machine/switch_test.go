// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"keelson.dev/keelson/pkg/provision"
)

// TestRestartOrder checks that the API server is restarted after etcd, whose restart stops it, and that no other
// program is ever newer than the API server.
func TestRestartOrder(t *testing.T) {
	for _, older := range []bool{false, true} {
		order := restartOrder(older)
		api := slices.Index(order, provision.APIServer)
		if api < 1 || order[api-1] != etcd {
			t.Errorf("older=%t: %q: the API server does not follow etcd", older, order)
		}
		if others := order[api+1:]; older && len(others) > 0 || !older && len(others) != len(order)-2 {
			t.Errorf("older=%t: %q: the API server is restarted at the wrong time", older, order)
		}
	}
}

// TestImportWithoutSocket checks that a switch goes on without the images if the switcher does not see containerd's
// socket. If that were a failure, a return to an early release that a power failure has interrupted would be undone.
func TestImportWithoutSocket(t *testing.T) {
	fakeSystemctl(t, "0")
	before := containerImages
	t.Cleanup(func() { containerImages = before })
	containerImages.Socket = filepath.Join(t.TempDir(), "socket")
	m := &host{Deps: Deps{Log: slog.New(slog.DiscardHandler)}}
	if imported, err := m.Import(t.Context(), "0.1.0"); imported || err != nil {
		t.Errorf("imported: %t, %v", imported, err)
	}
}
