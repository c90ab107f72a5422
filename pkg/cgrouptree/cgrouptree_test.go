// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgrouptree

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"keelson.dev/api/clock"
)

func write(t *testing.T, file, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestHierarchies(t *testing.T) {
	for name, c := range map[string]struct{ files, links, want []string }{
		"none":      {},
		"version 2": {files: []string{"cgroup.controllers", "a/cgroup.procs"}, want: []string{""}},
		"version 1": {files: []string{"memory/cgroup.procs", "cpu,cpuacct/cgroup.procs", "other/file"},
			links: []string{"cpu", "cpuacct"}, want: []string{"cpu,cpuacct", "memory"}},
		"both": {files: []string{"memory/cgroup.procs", "unified/cgroup.procs", "unified/cgroup.controllers"},
			want: []string{"memory", "unified"}},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			for _, f := range c.files {
				write(t, filepath.Join(mount, f), "")
			}
			for _, l := range c.links {
				if err := os.Symlink("cpu,cpuacct", filepath.Join(mount, l)); err != nil {
					t.Fatal(err)
				}
			}
			var want []string
			for _, w := range c.want {
				want = append(want, filepath.Join(mount, w))
			}
			if got, err := Hierarchies(mount); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

// sleeper starts a process that only a signal ends, and returns its ID and a function that waits for
// its end and returns the signal.
func sleeper(t *testing.T) (pid int, ended func() syscall.Signal) {
	t.Helper()
	c := exec.Command("sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c.Process.Pid, func() syscall.Signal {
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) {
			t.Fatal("process ended:", err)
		}
		return exit.Sys().(syscall.WaitStatus).Signal()
	}
}

// TestRemove checks the removal with ordinary directories. A file in a directory prevents its removal
// as a process in a cgroup does.
func TestRemove(t *testing.T) {
	root := t.TempDir()
	pid, ended := sleeper(t)
	for _, dir := range []string{"pods/empty/below", "pods/frozen/below", "beside"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busy := filepath.Join(root, "pods/frozen")
	write(t, filepath.Join(busy, "cgroup.procs"), "0\n1\n"+strconv.Itoa(pid)+"\n")
	write(t, filepath.Join(busy, "freezer.state"), "FROZEN")
	if err := Remove(filepath.Join(root, "pods")); err == nil {
		t.Error("no error, although a cgroup remains")
	}
	if got := ended(); got != syscall.SIGKILL {
		t.Errorf("process ended with %v, want SIGKILL", got)
	}
	if state, err := os.ReadFile(filepath.Join(busy, "freezer.state")); err != nil || string(state) != "THAWED" {
		t.Errorf("state %q, %v, want THAWED", state, err)
	}
	var left []string
	for _, dir := range []string{"pods", "pods/empty", "pods/frozen", "pods/frozen/below", "beside"} {
		if _, err := os.Stat(filepath.Join(root, dir)); err == nil {
			left = append(left, dir)
		}
	}
	if want := []string{"pods", "pods/frozen", "beside"}; !slices.Equal(left, want) {
		t.Errorf("%q remain, want %q", left, want)
	}
	for _, file := range []string{"cgroup.procs", "freezer.state"} {
		if err := os.Remove(filepath.Join(busy, file)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time, there is nothing
		if err := RemoveAll(t.Context(), []string{root, filepath.Join(root, "missing")}, "pods", clock.Real()); err != nil {
			t.Error(err)
		}
	}
}
