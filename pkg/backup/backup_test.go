// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// key returns an identity.
func key(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// manifest returns a manifest without files.
func manifest() *Manifest {
	return &Manifest{Cluster: "c", Node: "m1", Release: "v1", Time: time.Unix(1_796_072_400, 5).UTC(), Revision: 7,
		Epoch: 3}
}

// sealed returns a backup with the content of a store and two files.
func sealed(t *testing.T, store string, to age.Recipient) []byte {
	t.Helper()
	dir := t.TempDir()
	path, err := Write(t.Context(), Directory(dir), manifest(), strings.NewReader(store), []File{
		{Name: "etc/kubernetes/pki/ca.key", Mode: 0o600, Data: []byte("secret")},
		{Name: "etc/keelson/config.yaml", Mode: 0o644},
	}, to)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "c_m1-20261130T210000Z.keelson-backup"); path != want {
		t.Errorf("the file is %s, want %s", path, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// buffer is a writer that can be closed.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

// unseal returns the files in a backup.
func unseal(data []byte, with ...age.Identity) (m *Manifest, files map[string]string, err error) {
	r, err := Open(bytes.NewReader(data), with...)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	buffers := map[string]*buffer{}
	err = r.Extract(func(e Entry) (io.WriteCloser, error) {
		buffers[e.Name] = &buffer{}
		return buffers[e.Name], nil
	})
	files = map[string]string{}
	for name, b := range buffers {
		files[name] = b.String()
	}
	return r.Manifest, files, err
}

func TestRoundTrip(t *testing.T) {
	id := key(t)
	store := strings.Repeat("store", 100_000)
	data := sealed(t, store, id.Recipient())
	if len(data) > len(store)/10 {
		t.Errorf("%d bytes: not compressed", len(data))
	}
	m, files, err := unseal(data, key(t), id)
	if err != nil {
		t.Fatal(err)
	}
	want := manifest()
	want.Format, want.Files = 1, m.Files
	if !m.Time.Equal(want.Time) || m.Cluster != want.Cluster || m.Node != want.Node || m.Revision != 7 || m.Epoch != 3 {
		t.Errorf("manifest %+v", m)
	}
	if m.Files[1].Mode != 0o600 || m.Files[2].Mode != 0o644 {
		t.Errorf("modes %v", m.Files)
	}
	if files[StoreName] != store || files["etc/kubernetes/pki/ca.key"] != "secret" || len(files) != 3 {
		t.Errorf("files %v", files)
	}
	none := Directory(t.TempDir())
	if _, err := Write(t.Context(), none, &Manifest{}, strings.NewReader(""), nil, id.Recipient()); err == nil {
		t.Error("a manifest without a cluster was accepted")
	}
}

// TestDamage cuts a backup off at each length, and changes each byte. No such backup can be read.
func TestDamage(t *testing.T) {
	id := key(t)
	data := sealed(t, "store", id.Recipient())
	for n := range data {
		if _, _, err := unseal(data[:n], id); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(data), err)
		}
		changed := slices.Clone(data)
		changed[n] ^= 1
		if _, _, err := unseal(changed, id); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrKey) {
			t.Fatalf("byte %d changed: %v", n, err)
		}
	}
	if _, _, err := unseal(append(data, 0), id); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestPassphrase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passphrase")
	for text, want := range map[string]string{
		"correct horse\r\n\n": "correct horse", " spaces are part ": " spaces are part ", "too short\n": "", "": "",
		strings.Repeat("x", maxSecretFile+1): "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Passphrase(file); got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: %q, %v", text, got, err)
		}
	}
	right, wrong := "correct horse battery", "correct horse baddery"
	to, err := SealWith(right)
	if err != nil {
		t.Fatal(err)
	}
	to.(*age.ScryptRecipient).SetWorkFactor(4)
	data := sealed(t, "store", to)
	for passphrase, want := range map[string]error{right: nil, wrong: ErrKey} {
		with, err := OpenWith(passphrase)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := unseal(data, with); !errors.Is(err, want) {
			t.Errorf("%s: %v", passphrase, err)
		}
	}
	if _, _, err := unseal(data, key(t)); !errors.Is(err, ErrKey) {
		t.Errorf("an identity instead of a passphrase: %v", err)
	}
}

func TestKeyFiles(t *testing.T) {
	id, other := key(t), key(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	if err := os.WriteFile(file, []byte("# comment\n"+other.Recipient().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Recipients([]string{id.Recipient().String()}, file)
	if err != nil || len(got) != 2 {
		t.Error(got, err)
	}
	for name, list := range map[string][]string{"none": nil, "malformed": {"age1x"}, "a secret": {id.String()}} {
		if _, err := Recipients(list, ""); err == nil || strings.Contains(err.Error(), id.String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Identities(file); err == nil {
		t.Error("recipients were accepted as identities")
	}
	if err := os.WriteFile(file, []byte(id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Identities(file); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
}

// TestManifest checks which manifests a reader rejects.
func TestManifest(t *testing.T) {
	const sum = `"sha256":"0000000000000000000000000000000000000000000000000000000000000000"`
	const head = `"cluster":"c","node":"n","release":"r","time":"2026-11-30T21:00:00Z","revision":1,`
	const store = `{"name":"store.db","mode":384,"size":5,` + sum + `}`
	one := func(more string) string { return `{"format":1,` + head + `"files":[` + store + more + `]}` }
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"valid":         {one(``), nil},
		"later format":  {`{"format":2,"new":true}`, errFormat},
		"no JSON":       {`x`, ErrDamaged},
		"no format":     {`{` + head + `"files":[` + store + `]}`, ErrDamaged},
		"unknown field": {`{"format":1,"x":1,` + head + `"files":[` + store + `]}`, ErrDamaged},
		"no store":      {`{"format":1,` + head + `"files":[]}`, ErrDamaged},
		"two stores":    {one(`,` + store), ErrDamaged},
		"path outside":  {one(`,{"name":"../x","size":1,` + sum + `}`), ErrDamaged},
		"absolute path": {one(`,{"name":"/etc/x","size":1,` + sum + `}`), ErrDamaged},
		"unclean path":  {one(`,{"name":"a//b","size":1,` + sum + `}`), ErrDamaged},
		"device":        {one(`,{"name":"a","mode":67108864,"size":1,` + sum + `}`), ErrDamaged},
		"negative size": {one(`,{"name":"a","size":-1,` + sum + `}`), ErrDamaged},
		"large file":    {one(`,{"name":"a","size":99999999,` + sum + `}`), ErrDamaged},
		"large files": {
			one(`,{"name":"a","size":40000000,` + sum + `},{"name":"b","size":40000000,` + sum + `}`), ErrDamaged,
		},
		"short hash":       {one(`,{"name":"a","size":1,"sha256":"00"}`), ErrDamaged},
		"another manifest": {one(`,{"name":"manifest.json","size":1,` + sum + `}`), ErrDamaged},
	} {
		if _, err := decodeManifest([]byte(tc.text)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
