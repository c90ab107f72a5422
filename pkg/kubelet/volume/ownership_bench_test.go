// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkChangeGroup changes the group of 10,000 files in 100 directories.
func BenchmarkChangeGroup(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	group := int64(1000)
	for b.Loop() {
		group++
		if err := changeGroup(dir, group, false); err != nil {
			b.Fatal(err)
		}
	}
}
