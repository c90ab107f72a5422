// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/machine/adopt"
	"keelson.dev/keelson/pkg/provision"
)

// TestAddNamed checks that a backup has all files that the control plane's flags name, and those that they name.
func TestAddNamed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		return path
	}
	oidc, a, b := write("oidc.crt", "authority"), write("a.crt", "a"), write("b.key", "b")
	log, hook, authority := write("audit.log", "log"), write("w/hook.yaml", ""), write("w/ca.crt", "ca")
	write("w/hook.yaml", "clusters:\n- cluster: {certificate-authority: ca.crt, server: https://x, name: other}\n"+
		"users:\n- user: {client-certificate: "+a+"}\n")
	write("w/other", "not named")
	admission := "/etc/kubernetes/admission.yaml" // in the backup already
	limits := write("limits.yaml", "limits: ["+hook+"]\n")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(oidc, link); err != nil {
		t.Fatal(err)
	}
	args := func(program string, flags ...string) backup.File {
		return backup.File{Name: argsFile(program)[1:], Data: []byte("ARGS=\"" + strings.Join(flags, " ") + "\"\n")}
	}
	files := []backup.File{
		args(provision.APIServer, "--oidc-ca-file="+link, "--tls-sni-cert-key="+a+","+b+":x.example.com",
			"--audit-log-path="+log, "--data="+dir, "--authorization-always-allow-paths=/healthz,/livez",
			"--admission-control-config-file="+admission, "--x=unix:///run/none.sock"),
		args(backupName, "--dir="+log),
		{Name: admission[1:], Data: []byte("plugins: [{name: x, path: " + limits + "}]\n")},
	}
	out, err := addNamed(files)
	if err != nil {
		t.Fatal(err)
	}
	got := otherFiles(out)
	slices.Sort(got)
	if want := []string{a, b, limits, link, authority, hook}; !slices.Equal(got, want) {
		t.Errorf("files\n%q, want\n%q", got, want)
	}
	for _, f := range out {
		if "/"+f.Name == link && (string(f.Data) != "authority" || f.Mode != 0o640) {
			t.Errorf("%s: %q, %o", link, f.Data, f.Mode)
		}
	}
	if err := os.Truncate(a, maxNamed+1); err != nil {
		t.Fatal(err)
	}
	if _, err := addNamed(files); !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), a) {
		t.Errorf("a large file: %v", err)
	}
}

// TestParseArgs reads files with flags in the form that ctl writes, and in those that administrators write.
func TestParseArgs(t *testing.T) {
	content, err := argsContent(etcd, []string{"--a=b", "--c=d=e"})
	if err != nil {
		t.Fatal(err)
	}
	want := []adopt.Flag{{Name: "a", Value: "b"}, {Name: "c", Value: "d=e"}}
	for _, text := range []string{
		string(content), "# --x=y\nX=\"--y=z\"\nARGS='--a b \\\n  -c=d=e'\n", "ARGS=--a=b --c=d=e",
	} {
		if got := parseArgs(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestKeysElsewhere checks that the keys in the file that the API server uses are found.
func TestKeysElsewhere(t *testing.T) {
	const config = "resources:\n- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: a, secret: x}]}\n" +
		"  - secretbox: {keys: [{name: b, secret: y}]}\n- resources: [configmaps]\n  providers:\n" +
		"  - secretbox: {keys: [{name: c, secret: z}]}\n"
	files := []backup.File{
		{Name: controlDir.EncryptionKeys()[1:], Data: []byte("resources: [{providers: [{secretbox: {keys: [{name: d}]}}]}]")},
		{Name: "srv/keys.yaml", Data: []byte(config)},
	}
	names := func() (out string) {
		for _, k := range encryptionKeys(files) {
			out += k.Name
		}
		return out
	}
	if got := names(); got != "d" {
		t.Errorf("without flags: %q", got)
	}
	files = append(files, backup.File{Name: argsFile(provision.APIServer)[1:],
		Data: []byte("ARGS=\"--encryption-provider-config=/srv/keys.yaml\"\n")})
	if got := names(); got != "bc" {
		t.Errorf("keys %q", got)
	}
}

// TestPlaceElsewhere checks that a restore writes a file at another place, but does not replace one there.
func TestPlaceElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new/oidc.crt")
	r := &restore{stamp: oldPrefix + "now"}
	for _, text := range []string{"first", "second"} {
		if err := r.place(backup.File{Name: path[1:], Mode: 0o640, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	info, _ := os.Stat(path)
	if err != nil || string(data) != "first" || info.Mode() != 0o640 {
		t.Errorf("%q, %v, %v", data, info, err)
	}
}
