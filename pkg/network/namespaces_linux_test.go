// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// TestAbandonedNamespaces checks that a namespace without processes counts as abandoned after
// abandonedFor, and that a namespace with a process or with another kind of name never does. The
// test uses plain files as namespaces. A process in the fake proc file system is in a namespace if
// it has a link to the file.
func TestAbandonedNamespaces(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	const (
		left    = "cni-11111111-1111-1111-1111-111111111111"
		lived   = "cni-22222222-2222-2222-2222-222222222222"
		later   = "cni-33333333-3333-3333-3333-333333333333"
		foreign = "somebody"
	)
	create := func(name string) string {
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
	leftFile, livedFile := create(left), create(lived)
	create(foreign)
	if _, err := n.Abandoned(); err == nil {
		t.Error("no error for a proc file system without processes")
	}
	enter("1", livedFile)
	expect := func(want ...string) {
		t.Helper()
		got, err := n.Abandoned()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("want %v, have %v, %v", want, got, err)
		}
	}
	laterFile := create(later)
	expect()
	clk.Step(abandonedFor - time.Second)
	enter("2", laterFile) // the first process in this namespace
	expect()
	clk.Step(time.Second)
	expect(leftFile)
	if err := os.RemoveAll(filepath.Join(proc, "2")); err != nil {
		t.Fatal(err)
	}
	expect(leftFile) // the other namespace has not been without processes for long enough
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

// TestDwellers checks that one process of each namespace is stored, and that another process is
// found after it has ended or has moved to another namespace.
func TestDwellers(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	home, other := filepath.Join(dir, "cni-11111111-1111-1111-1111-111111111111"), filepath.Join(dir, "elsewhere")
	live := func(pid, file string) {
		t.Helper()
		link := filepath.Join(proc, pid, "ns", "net")
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.RemoveAll(link),
			os.Symlink(file, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{home, other} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := NewNamespaces(dir, proc, testclock.NewFakeClock(time.Unix(0, 0)))
	empty := func(want bool, when string) {
		t.Helper()
		if got, err := n.empty(); err != nil || (len(got) == 1) != want {
			t.Errorf("%s: %v %v", when, got, err)
		}
	}
	for _, pid := range []string{"1", "2", "3"} {
		live(pid, home)
	}
	empty(false, "three there")
	for _, pid := range []string{"3", "1"} { // the stored process is one of these two or the last one
		if err := os.RemoveAll(filepath.Join(proc, pid)); err != nil {
			t.Fatal(err)
		}
		empty(false, pid+" ended")
	}
	live("4", home)
	live("2", other)
	empty(false, "2 moved, 4 came")
	live("4", other)
	empty(true, "all moved")
	live("5", home)
	empty(false, "5 came")
}
