// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson.dev/api/machines/v1alpha1"
)

// makeRelease makes a release whose programs are all the same ELF program of this machine.
func makeRelease(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	executables, others := releaseFiles()
	for _, file := range executables {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "systemd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range others {
		write(t, filepath.Join(dir, file), "[Unit]\n")
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file that may be a link.
func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, content)
}

// TestCheckRelease checks that a release that cannot run is refused before anything changes.
func TestCheckRelease(t *testing.T) {
	// An ELF header of a 64-bit program for RISC-V, which no release of Keelson is built for.
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf3\x00\x01\x00\x00\x00" +
		strings.Repeat("\x00", 28) + "\x40\x00\x38\x00\x00\x00\x40\x00\x00\x00\x00\x00"
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string // a part of the error; empty if there is none
	}{
		"complete":     {func(*testing.T, string) {}, ""},
		"known format": {func(t *testing.T, dir string) { write(t, dir+"/FORMAT", "1\n") }, ""},
		"new format":   {func(t *testing.T, dir string) { write(t, dir+"/FORMAT", "2\n") }, "unknown format"},
		"no program":   {func(t *testing.T, dir string) { _ = os.Remove(dir + "/tools/crun") }, "tools/crun"},
		"no unit": {func(t *testing.T, dir string) { _ = os.Remove(dir + "/systemd/keelson-switch.service") },
			"keelson-switch"},
		"not installed": {func(t *testing.T, dir string) { _ = os.RemoveAll(dir) },
			"is not installed on this machine"},
		"a link": {func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+"x"); err != nil {
				t.Fatal(err)
			}
			_ = os.Symlink(dir+"x", dir)
		}, "is not installed"},
		"other architecture": {func(t *testing.T, dir string) { replace(t, dir+"/bin/kubelet", foreign) },
			"architecture"},
		"script": {func(t *testing.T, dir string) { replace(t, dir+"/bin/kubelet", "#!/bin/sh\n") }, "architecture"},
		"not executable": {func(t *testing.T, dir string) {
			data, err := os.ReadFile("/proc/self/exe")
			if err != nil {
				t.Fatal(err)
			}
			replace(t, dir+"/bin/proxy", string(data))
			_ = os.Chmod(dir+"/bin/proxy", 0o644)
		}, "bin/proxy: permission"},
		"right sum": {func(t *testing.T, dir string) {
			write(t, dir+"/VERSION", "")
			write(t, dir+"/SHA256SUMS", empty+"  VERSION\n")
		}, ""},
		"wrong sum": {func(t *testing.T, dir string) {
			write(t, dir+"/VERSION", "1\n")
			write(t, dir+"/SHA256SUMS", empty+"  VERSION\n")
		}, "VERSION: has another checksum"},
		"half a release": {func(t *testing.T, dir string) { write(t, dir+"/SHA256SUMS", empty+"  VERSION\n") }, "VERSION"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "1")
			makeRelease(t, dir)
			tc.change(t, dir)
			err := checkRelease(dir)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestReleases checks that only directories are releases, and that a release whose API server does not
// print a version has none, and is refused.
func TestReleases(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"1": "#!/bin/sh\necho 'Keelson 0.2.0 (Kubernetes v1.37.2+keelson.0.2.0)'\n", "2": "#!/bin/sh\nexit 1\n",
	} {
		makeRelease(t, filepath.Join(dir, name))
		replace(t, filepath.Join(dir, name, "bin", "apiserver"), script)
	}
	write(t, dir+"/file", "")
	if err := os.Symlink("1", dir+"/current"); err != nil {
		t.Fatal(err)
	}
	r := newReleaseDirs(dir)
	for range 2 { // the second time, the versions are known
		list, err := r.list(t.Context())
		want := []v1alpha1.Release{{Name: "1", Kubernetes: "v1.37.2"}, {Name: "2"}}
		if err != nil || !slices.Equal(list, want) {
			t.Errorf("%v, %v", list, err)
		}
	}
	makeRelease(t, filepath.Join(dir, "3"))
	if err := os.Remove(dir + "/3/bin/apiserver"); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, dir+"/3/bin/apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := r.check(t.Context(), "3"); err == nil || !strings.Contains(err.Error(), "does not print its version") {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if v := newReleaseDirs(dir).version(ended, "1"); v != "" {
		t.Errorf("version %q after the end", v)
	}
}

func TestParseUnit(t *testing.T) {
	got := parseUnit("MainPID=12\nNRestarts=3\nExecMainStartTimestamp=@1800000000\nActiveState=active\n")
	if want := (unitState{true, 12, 3, time.Unix(1800000000, 0)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// A unit that has never been started.
	got = parseUnit("MainPID=0\nNRestarts=0\nExecMainStartTimestamp=\nActiveState=inactive\n")
	if got.active || got.pid != 0 {
		t.Errorf("%+v", got)
	}
}
