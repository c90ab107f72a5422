// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"testing"

	certutil "k8s.io/client-go/util/cert"
)

// TestFilesAreFollowed checks that the authorities of signers are read again.
func TestFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f := &keyFiles{cert: write("ca.crt", "cert 1"), key: write("ca.key", "key 1")}
	for _, want := range []string{"1", "2"} {
		write("ca.crt", "cert "+want)
		write("ca.key", "key "+want)
		pair, err := f.read()
		if err != nil || string(pair.Cert) != "cert "+want || string(pair.Key) != "key "+want || len(pair.Cross) > 0 {
			t.Errorf("%s: %q, %q, cross %q, %v", want, pair.Cert, pair.Key, pair.Cross, err)
		}
	}
	write("ca-cross.crt", "cross")
	if pair, err := f.read(); err != nil || string(pair.Cross) != "cross" {
		t.Errorf("cross certificates: %q, %v", pair.Cross, err)
	}
	if err := os.Remove(f.cert); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(); err == nil {
		t.Error("no error without the file of a signer")
	}
	other := &keyFiles{cert: write("ca.pem", "cert"), key: f.key}
	write("ca.pem-cross.crt", "cross")
	if pair, err := other.read(); err != nil || len(pair.Cross) > 0 {
		t.Errorf("a name without .crt: cross %q, %v", pair.Cross, err)
	}
}

// TestRootCAIsFollowed checks that the authorities of pods are replaced only by complete certificates that
// were read twice.
func TestRootCAIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	certificate := func(host string) string {
		t.Helper()
		data, _, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	one, two, three := certificate("one"), certificate("two"), certificate("three")
	read := followRootCA(file, []byte(one))
	half := two + three[:len(three)/2]
	for _, step := range []struct{ name, content, want string }{
		{"no file", "", one},
		{"first read", two, one}, {"second read", two, two}, {"third read", two, two},
		{"half", half, two}, {"half again", half, two},
		{"no certificate", "text", two}, {"no certificate again", "text", two},
		{"more", two + three, two}, {"changed between the reads", three + "\n", two},
		{"twice", three + "\n", three + "\n"},
	} {
		if step.content != "" {
			if err := os.WriteFile(file, []byte(step.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(read()); got != step.want {
			t.Errorf("%s: %q", step.name, got)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := string(read()); got != three+"\n" {
		t.Errorf("without the file: %q", got)
	}
}
