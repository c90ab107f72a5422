// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(leaktest.Checked{M: m}, unshare.Mount) }

// TestRemoveData checks that removeData also detaches loop devices of files in the data directory,
// whichever process attached them.
func TestRemoveData(t *testing.T) {
	unshare.Need(t)
	c := &Config{DataDir: filepath.Join(t.TempDir(), "data")}
	disk := filepath.Join(c.dirs().nodes(), "n1", "tmp", "local-driver", "file")
	for _, path := range []string{c.dirs().config(), disk} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(filepath.Dir(c.DataDir), "kept") // hard link to the file, to look up its loop device later
	if err := os.Link(disk, kept); err != nil {
		t.Fatal(err)
	}
	device, err := loopdev.Attach(disk, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loopdev.Detach(kept) })
	_ = device.Close()
	if err := removeData(c); err != nil {
		t.Fatal(err)
	}
	if dev, err := loopdev.DeviceOf(kept); err != nil || dev != "" {
		t.Errorf("device %q, %v", dev, err)
	}
	if exists(c.DataDir) {
		t.Error("the directory is still there")
	}
}
