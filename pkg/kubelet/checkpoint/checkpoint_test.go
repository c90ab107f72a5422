// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

func TestCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var got map[string]int
	if found, err := checkpoint.Read(path, &got); found || err != nil {
		t.Fatalf("missing file: %t, %v", found, err)
	}
	for want, write := range map[int]func(string, any) error{1: checkpoint.Write, 2: checkpoint.WriteDurably} {
		if err := write(path, map[string]int{"a": want}); err != nil {
			t.Fatal(err)
		}
		if found, err := checkpoint.Read(path, &got); !found || err != nil || got["a"] != want {
			t.Errorf("found %t, %v, %v", found, got, err)
		}
	}
	if err := checkpoint.Write(path, map[string]int{"a": 2}); err != nil {
		t.Fatal(err)
	}
	// A file left by an interrupted write must not affect the content.
	if err := os.WriteFile(path+".new", []byte(`{"a":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Read(path, &got); err != nil || got["a"] != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := checkpoint.Read(path, &got); !found || err == nil {
		t.Errorf("a broken file: %t, %v", found, err)
	}
}
