// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFilesAreFollowed checks that the authorities of signers and of pods are read again, and that a file
// that cannot be read does not replace what was read before.
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
	read := followRootCA(f.cert, []byte("at the start"))
	if got := string(read()); got != "cert 2" {
		t.Errorf("authorities of pods: %q", got)
	}
	if err := os.Remove(f.cert); err != nil {
		t.Fatal(err)
	}
	if got := string(read()); got != "cert 2" {
		t.Errorf("without the file: %q", got)
	}
	if _, err := f.read(); err == nil {
		t.Error("no error without the file of a signer")
	}
}
