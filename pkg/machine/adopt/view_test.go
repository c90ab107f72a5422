// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// units returns what the units of Keelson's programs see.
func units(t *testing.T) map[string]View {
	t.Helper()
	out := map[string]View{}
	for _, p := range programs() {
		text, err := os.ReadFile("../../../deploy/systemd/keelson-" + p.name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		out[p.name] = ParseUnit(string(text))
	}
	return out
}

// TestView checks which files the units of Keelson's programs see.
func TestView(t *testing.T) {
	const all = "apiserver controller-manager etcd scheduler"
	for path, want := range map[string]string{
		"/etc/kubernetes/pki/ca.crt": all, "/srv/policy.yaml": all, "/opt/x": all, "/var/log/x": all, "/roots/x": all,
		"/usr/local/share/ca.crt": all,
		"/root/policy.yaml":       "", "/home/a/policy.yaml": "", "/run/kms.sock": "", "/var/run/kms.sock": "",
		"/run/user/0/x": "",
		"/tmp/x":        "", "/var/tmp/x": "", "/var/lib/x/policy.yaml": "", "/var/lib": "", "/var/lib/etcd2": "",
		"/var/lib/etcd": "apiserver etcd", "/var/lib/etcd/encryption.yaml": "apiserver etcd",
		"/var/log/kubernetes/audit.log":   "apiserver",
		"/run/systemd/resolve/x":          "apiserver controller-manager scheduler",
		"/run/systemd/notify":             "etcd",
		"/run/systemd/private":            "",
		"/var/lib/etcd/../x/policy.yaml":  "",
		"/var/run/systemd/resolve/x":      "apiserver controller-manager scheduler",
		"/etc/../var/lib/etcd/member/xyz": "apiserver etcd",
	} {
		var by []string
		for name, v := range units(t) {
			if v.sees(path) {
				by = append(by, name)
			}
		}
		if slices.Sort(by); strings.Join(by, " ") != want {
			t.Errorf("%s: seen by %q, want %q", path, by, want)
		}
	}
}

// TestViewSettings checks forms of settings that drop-in files may have, and links.
func TestViewSettings(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.MkdirAll(filepath.Join(dir, "hidden/file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "hidden/file"), link); err != nil {
		t.Fatal(err)
	}
	v := ParseUnit("[Service]\nTemporaryFileSystem=/run:ro\nBindPaths=-/srv/kms.sock:/run/kms.sock:norbind /run/b.sock\n" +
		"ProtectHome=read-only\nPrivateTmp=no\nInaccessiblePaths=-" + dir + "/hidden\n")
	for path, want := range map[string]bool{
		"/run/kms.sock": true, "/run/b.sock": true, "/run/c.sock": false, "/root/x": true, link: false,
		filepath.Join(dir, "x"): true,
	} {
		if got := v.sees(path); got != want {
			t.Errorf("%s: seen %t, want %t", path, got, want)
		}
	}
}
