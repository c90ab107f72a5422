// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// TestKeyPairFollows checks that replaced files are reloaded, even if their modification time stays
// the same, and that the previous certificate is used while only one of the two files is replaced.
func TestKeyPairFollows(t *testing.T) {
	dir, when := t.TempDir(), time.Unix(1_700_000_000, 0)
	k := &KeyPair{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	replace := func(path string, data []byte) {
		t.Helper()
		next := path + ".next"
		if err := os.WriteFile(next, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(next, when, when); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	presents := func(name string) {
		t.Helper()
		cert, err := k.Get()
		if err != nil {
			t.Fatal(err)
		}
		if got := cert.Leaf.DNSNames; len(got) != 1 || got[0] != name {
			t.Errorf("presents %q, want %s", got, name)
		}
	}
	if cert, err := k.Get(); err == nil {
		t.Errorf("without files: %v", cert)
	}
	// The names have the same length, so that the files may have the same size.
	for _, name := range []string{"a.test", "b.test"} {
		cert, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := k.cert
		replace(k.CertFile, cert)
		if before != nil {
			presents("a.test")
		}
		replace(k.KeyFile, key)
		presents(name)
	}
}
