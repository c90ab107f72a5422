// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package loopdev

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Mount) }

func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func attach(t *testing.T, path string, transient bool) *Device {
	t.Helper()
	d, err := Attach(path, transient)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func deviceOf(t *testing.T, path string) string {
	t.Helper()
	dev, err := DeviceOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// TestDevice checks that a file has only one device, and that the device stays until it is detached
// and grows with the file.
func TestDevice(t *testing.T) {
	unshare.Need(t)
	path := image(t)
	t.Cleanup(func() { _ = Detach(path) })
	if dev := deviceOf(t, path); dev != "" {
		t.Fatalf("has %s already", dev)
	}
	first, second := attach(t, path, false), attach(t, path, false)
	if first.Path != second.Path {
		t.Errorf("two devices: %s and %s", first.Path, second.Path)
	}
	if err := os.Truncate(path, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := Resize(path); err != nil {
		t.Fatal(err)
	}
	if size, err := unix.Seek(int(first.file.Fd()), 0, unix.SEEK_END); err != nil || size != 2<<20 {
		t.Errorf("%d bytes, %v", size, err)
	}
	_, _ = first.Close(), second.Close()
	if dev := deviceOf(t, path); dev != first.Path {
		t.Errorf("now it has %q", dev)
	}
	if err := Detach(path); err != nil {
		t.Fatal(err)
	}
	if dev := deviceOf(t, path); dev != "" {
		t.Errorf("still has %s", dev)
	}
}

// TestTransient checks that a transient device is freed when its last user has ended.
func TestTransient(t *testing.T) {
	unshare.Need(t)
	path := image(t)
	d, other := attach(t, path, true), attach(t, path, true)
	_ = d.Close()
	if deviceOf(t, path) == "" {
		t.Error("freed too early")
	}
	_ = other.Close()
	if dev := deviceOf(t, path); dev != "" {
		t.Errorf("still has %s", dev)
	}
}

// TestDetachBelow checks that the devices of the files in a directory are freed, and no other
// devices.
func TestDetachBelow(t *testing.T) {
	unshare.Need(t)
	dir, other := t.TempDir(), image(t)
	deep := filepath.Join(dir, "a", "b", "disk")
	if err := os.MkdirAll(filepath.Dir(deep), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(image(t), deep); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{deep, other} {
		t.Cleanup(func() { _ = Detach(path) })
		_ = attach(t, path, false).Close()
	}
	if err := DetachBelow(dir); err != nil {
		t.Fatal(err)
	}
	if dev := deviceOf(t, deep); dev != "" {
		t.Errorf("still has %s", dev)
	}
	if deviceOf(t, other) == "" {
		t.Error("a device of another directory was freed")
	}
	if err := DetachBelow(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

// TestNoFile checks that a removed file has no device, and that none can be attached to it.
func TestNoFile(t *testing.T) {
	if dev := deviceOf(t, "/nonexistent"); dev != "" {
		t.Error(dev)
	}
	if err := Detach("/nonexistent"); err != nil {
		t.Error(err)
	}
	if _, err := Attach("/nonexistent", true); err == nil {
		t.Error("attached")
	}
}
