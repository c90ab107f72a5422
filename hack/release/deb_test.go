// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDebian checks the package's name, version and files as dpkg-deb sees them, and that two calls
// write the same bytes.
func TestDebian(t *testing.T) {
	tool, err := exec.LookPath("dpkg-deb")
	if _, missing := exec.LookPath("xz"); err != nil || missing != nil {
		t.Skip("dpkg-deb or xz is not installed")
	}
	for version, want := range map[string]struct{ file, version string }{
		"0.2.0":           {"keelson-0.2.0_0.2.0_arm64.deb", "0.2.0"},
		"0.2.0-dev.gabc1": {"keelson-0.2.0-dev.gabc1_0.2.0~dev.gabc1_arm64.deb", "0.2.0~dev.gabc1"},
	} {
		r := testRelease
		r.Version, r.Arch, r.Quick, r.Source = version, "arm64", true, "../.."
		files, err := list(write(t, 0o700, map[string]string{"bin/ctl": "program", "bin/kubectl": "->ctl"}))
		if err != nil {
			t.Fatal(err)
		}
		var first, second bytes.Buffer
		p := r.debian(files)
		if err := p.write(&first, r.compress); err != nil {
			t.Fatal(err)
		}
		if err := r.debian(files).write(&second, r.compress); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Error("two calls differ", err)
		}
		if p.file != want.file {
			t.Errorf("file %s, want %s", p.file, want.file)
		}
		path := filepath.Join(t.TempDir(), p.file)
		if err := os.WriteFile(path, first.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		read := func(args ...string) string {
			out, err := exec.Command(tool, append(args, path)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}
		fields := read("--show", "--showformat=${Package} ${Version} ${Architecture} ${Depends}")
		if want := "keelson-" + version + " " + want.version + " arm64 e2fsprogs, mount, nftables, systemd"; fields != want {
			t.Errorf("fields %q, want %q", fields, want)
		}
		contents := read("--contents")
		top := "./usr/lib/keelson/" + version
		for _, line := range []string{
			"-rwxr-xr-x root/root         7 2023-11-14 22:13 " + top + "/bin/ctl",
			" 2023-11-14 22:13 ./usr/share/doc/keelson-" + version + "/copyright\n",
			"lrwxrwxrwx root/root         0 2023-11-14 22:13 " + top + "/bin/kubectl -> ctl",
		} {
			if !strings.Contains(contents, line) {
				t.Errorf("no line %q in\n%s", line, contents)
			}
		}
	}
}

// TestRemoval checks that the package of the version that a machine runs cannot be removed.
func TestRemoval(t *testing.T) {
	for name, c := range map[string]struct {
		link, target, action string
		refused              bool
	}{
		"no version runs":                     {"current", "", "remove", false},
		"another version runs":                {"current", "0.3.0", "remove", false},
		"the version runs":                    {"current", "0.2.0", "remove", true},
		"the version runs, whole path":        {"current", "/usr/lib/keelson/0.2.0", "remove", true},
		"the version's files are renewed":     {"current", "0.2.0", "upgrade", false},
		"a switch from the version":           {"switching", "/usr/lib/keelson/0.2.0", "remove", true},
		"a switch from another version":       {"switching", "/usr/lib/keelson/0.3.0", "remove", false},
		"files are renewed during the switch": {"switching", "/usr/lib/keelson/0.2.0", "upgrade", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "usr/lib/keelson")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.target != "" {
				if err := os.Symlink(c.target, filepath.Join(dir, c.link)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("sh", "prerm", c.action)
			cmd.Env = append(os.Environ(), "DPKG_ROOT="+root, "DPKG_MAINTSCRIPT_PACKAGE=keelson-0.2.0")
			if out, err := cmd.CombinedOutput(); (err != nil) != c.refused {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestRemovalUnpins checks that the images of a removed version, and no others, lose their pins, and that a
// machine without containerd does not prevent the removal.
func TestRemovalUnpins(t *testing.T) {
	const list = `--namespace k8s.io images ls --quiet labels."machines.keelson.dev/release"=="0.2.0"` + "\n"
	const label = "--namespace k8s.io images label a:1 io.cri-containerd.pinned= machines.keelson.dev/release=\n"
	for name, c := range map[string]struct{ ctr, action, want string }{
		"removed":               {`case "$*" in *" ls "*) echo a:1; esac`, "remove", list + label},
		"containerd is stopped": {"exit 1", "remove", list},
		"renewed":               {"", "upgrade", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "usr/lib/keelson")
			calls := filepath.Join(root, "calls")
			ctr := "#!/bin/sh\necho \"$*\" >>" + calls + "\n" + c.ctr + "\n"
			err := errors.Join(os.MkdirAll(filepath.Join(dir, "0.3.0/tools"), 0o755),
				os.Symlink("0.3.0", filepath.Join(dir, "current")), os.WriteFile(calls, nil, 0o600),
				os.WriteFile(filepath.Join(dir, "0.3.0/tools/ctr"), []byte(ctr), 0o755))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "prerm", c.action)
			cmd.Env = append(os.Environ(), "DPKG_ROOT="+root, "DPKG_MAINTSCRIPT_PACKAGE=keelson-0.2.0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if got, err := os.ReadFile(calls); err != nil || string(got) != c.want {
				t.Errorf("calls %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
