// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"os"
	"path/filepath"
	"testing"

	"keelson.dev/keelson/pkg/machine/journal"
)

type entry struct{ Step string }

func TestFile(t *testing.T) {
	f := journal.File[entry](filepath.Join(t.TempDir(), "journal"))
	if e, err := f.Load(); e != nil || err != nil {
		t.Errorf("without a file: %+v, %v", e, err)
	}
	for _, step := range []string{"a", "b"} {
		if err := f.Save(&entry{step}); err != nil {
			t.Fatal(err)
		}
		if e, err := f.Load(); err != nil || e == nil || e.Step != step {
			t.Errorf("%+v, %v", e, err)
		}
	}
	for range 2 {
		if err := f.Remove(); err != nil {
			t.Fatal(err)
		}
		if e, err := f.Load(); e != nil || err != nil {
			t.Errorf("removed: %+v, %v", e, err)
		}
	}
	if err := os.WriteFile(string(f), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e, err := f.Load(); e != nil || err == nil {
		t.Errorf("damaged: %+v, %v", e, err)
	}
}
