// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// TestAbandonedNamespaces: namespaces that nobody lives in count as abandoned after a
// while, those of processes and of other names never. The namespaces here are files,
// which a process of the made-up proc is in by a link.
func TestAbandonedNamespaces(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	const (
		left    = "cni-11111111-1111-1111-1111-111111111111"
		lived   = "cni-22222222-2222-2222-2222-222222222222"
		later   = "cni-33333333-3333-3333-3333-333333333333"
		foreign = "somebody"
	)
	make := func(name string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	enter := func(pid, file string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, filepath.Join(proc, pid, "ns", "net")); err != nil {
			t.Fatal(err)
		}
	}
	clk := testclock.NewFakeClock(time.Unix(0, 0))
	n := NewNamespaces(dir, proc, clk)
	if got, err := n.Abandoned(); err != nil || len(got) > 0 {
		t.Fatalf("nothing there: %v, %v", got, err)
	}
	leftFile, livedFile := make(left), make(lived)
	make(foreign)
	if _, err := n.Abandoned(); err == nil {
		t.Error("a file system without processes is believed")
	}
	enter("1", livedFile)
	expect := func(want ...string) {
		t.Helper()
		got, err := n.Abandoned()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("want %v, have %v, %v", want, got, err)
		}
	}
	laterFile := make(later)
	expect()
	clk.Step(abandonedFor - time.Second)
	enter("2", laterFile) // its first process
	expect()
	clk.Step(time.Second)
	expect(leftFile)
	if err := os.RemoveAll(filepath.Join(proc, "2")); err != nil {
		t.Fatal(err)
	}
	expect(leftFile) // the other has been empty for a moment only
	if err := n.Remove(leftFile); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(leftFile); err != nil {
		t.Errorf("again: %v", err)
	}
	expect()
	clk.Step(abandonedFor)
	expect(laterFile)
}
