// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestDirectory lists a directory with backups of two clusters and other files, and removes old ones.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	if _, ok, err := Newest(dir, "a", time.Now()); ok || err != nil {
		t.Error("a directory that does not exist", ok, err)
	}
	now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	names := []string{"README", "a.keelson-backup", "-20261130T210000Z.keelson-backup", "a-20261130T210000Z",
		".partial-1.keelson-backup", ".partial-2.keelson-backup"}
	for i := range 4 {
		names = append(names, Name("a", now.Add(time.Duration(i)*time.Hour)))
	}
	names = append(names, Name("a-b", now), Name("a-b", now.Add(2*time.Hour)))
	for _, name := range names {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := now.Add(-24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, ".partial-1.keelson-backup"), old, old); err != nil {
		t.Fatal(err)
	}
	all, err := List(dir)
	if err != nil || len(all) != 6 || !slices.IsSortedFunc(all, func(x, y Listed) int { return y.Time.Compare(x.Time) }) {
		t.Fatal(all, err)
	}
	if l, ok, err := Newest(dir, "a-b", now.Add(2*time.Hour)); !ok || err != nil || l.Cluster != "a-b" ||
		!l.Time.Equal(now.Add(2*time.Hour)) {
		t.Error(l, ok, err)
	}
	if l, ok, err := Newest(dir, "a-b", now.Add(time.Hour)); !ok || err != nil || !l.Time.Equal(now) {
		t.Error("the newest one is in the future:", l, ok, err)
	}
	removed, err := Prune(dir, "a", 1, now.Add(2*time.Hour)) // one of the four is in the future
	want := []string{filepath.Join(dir, Name("a", now.Add(time.Hour))), filepath.Join(dir, Name("a", now))}
	if err != nil || !slices.Equal(removed, want) {
		t.Errorf("%v, %v; want %v", removed, err, want)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names)-3 {
		t.Error(entries, err)
	}
	if _, err := List(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that does not exist was listed")
	}
}
