// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/pki"
)

// TestSameCluster checks which backups a machine accepts during and after a rotation.
func TestSameCluster(t *testing.T) {
	clk := clock.Real()
	first, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "kubernetes", 0, clk)
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Succeed(0, clk)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "kubernetes", 0, clk)
	if err != nil {
		t.Fatal(err)
	}
	was, is := []*x509.Certificate{first.Cert}, []*x509.Certificate{second.Cert}
	both := append(was, is...)
	for name, c := range map[string]struct {
		bundle  []*x509.Certificate // in the backup
		signer  *pki.Authority      // in the backup
		trusted []*x509.Certificate // on the machine
		want    error
	}{
		"same":                               {was, first, was, nil},
		"before step 1, machine after it":    {was, first, both, nil},
		"after step 1, machine before it":    {both, first, was, nil},
		"after step 2, machine before it":    {both, second, both, nil},
		"after step 2, machine after all":    {both, second, is, nil},
		"after all, machine before step 1":   {is, second, was, nil},
		"before step 1, machine after all":   {was, first, is, errOtherCluster},
		"before step 2, machine after all":   {both, first, is, errOtherCluster},
		"another cluster with equal names":   {was, first, []*x509.Certificate{other.Cert}, errOtherCluster},
		"machine without a cluster, no file": {was, first, nil, nil},
	} {
		key, err := c.signer.Key()
		if err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(t.TempDir(), "ca.crt")
		if c.trusted != nil {
			if err := os.WriteFile(own, pki.Encode(c.trusted...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		file := func(name string, data []byte) backup.File {
			return backup.File{Name: strings.TrimPrefix(controlDir.PKI(name), "/"), Data: data}
		}
		files := []backup.File{file("ca.crt", pki.Encode(c.bundle...)), file("ca.key", key),
			file("ca-cross.crt", pki.Encode(c.signer.AllCross()...))}
		if err := sameCluster(files, own, clk.Now()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	own := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(own, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sameCluster(nil, own, clk.Now()); err == nil {
		t.Error("no error for a file without certificates")
	}
}

// TestAside checks that a restore keeps what it replaces, and that a file that is about to be replaced is not
// missing meanwhile.
func TestAside(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	want := func(name, content string) {
		t.Helper()
		if got, err := os.ReadFile(path(name)); err != nil || string(got) != content {
			t.Errorf("%s: %q, %v; want %q", name, got, err, content)
		}
	}
	for _, name := range []string{"config.yaml", "pki/ca.crt", "etcd.env"} {
		if err := atomicfile.WriteDurably(path(name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"config.yaml", "pki/ca.crt", "missing"} {
		if err := keepAside(dir, "stamp", []string{name}); err != nil {
			t.Fatal(err)
		}
	}
	want("config.yaml", "old")
	want("pki/ca.crt", "old")
	if err := atomicfile.WriteDurably(path("config.yaml"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("config.yaml", "new")
	want("stamp/config.yaml", "old")
	if err := moveAside(dir, "stamp", []string{"etcd.env", "missing"}); err != nil {
		t.Fatal(err)
	}
	want("stamp/etcd.env", "old")
	if exists(path("etcd.env")) || exists(path("stamp/missing")) {
		t.Error("a file is not where it should be")
	}
}

// TestUnfinished checks that the error of a restore that has stopped the control plane names the command that goes on,
// also after the data of etcd were moved.
func TestUnfinished(t *testing.T) {
	const stamp = "before-restore-20261201T000000Z"
	store := t.TempDir()
	cause := errors.New("no space left")
	for name, tc := range map[string]struct{ source, moved, want string }{
		"a backup":               {moved: stamp, want: "run the command again"},
		"the store":              {source: store + "/", moved: "other", want: "run the command again"},
		"the store, moved":       {source: store + "/", moved: stamp, want: `--from-data-dir ` + store + "/" + stamp + `"`},
		"another data directory": {source: store + "/x", moved: stamp, want: "run the command again"},
	} {
		t.Run(name, func(t *testing.T) {
			mkdirs(t, store, filepath.Join(tc.moved, storeData))
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(store, tc.moved)) })
			err := unfinished(cause, tc.source, store, stamp)
			if !errors.Is(err, cause) || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// TestKeepFlags checks that a restore keeps the flags of all programs, and that no program of the control plane has
// flags until the restore has written them again.
func TestKeepFlags(t *testing.T) {
	const stamp = "before-restore-20261201T000000Z"
	dir := t.TempDir()
	for _, p := range programs() {
		if err := os.WriteFile(filepath.Join(dir, p+".env"), []byte("of "+p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := keepFlags(dir, stamp); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs() {
		file := filepath.Join(dir, p+".env")
		if control := slices.Contains(controlPrograms(), p); exists(file) == control {
			t.Errorf("%s: the file is there: %t", p, exists(file))
		} else if !control {
			if err := atomicfile.Write(file, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if kept, err := os.ReadFile(filepath.Join(dir, stamp, p+".env")); err != nil || string(kept) != "of "+p {
			t.Errorf("%s: kept %q, %v", p, kept, err)
		}
	}
}
