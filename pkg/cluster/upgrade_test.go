// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestUpgradeOrder checks that API servers are restarted before all other programs except etcd, and
// kubelets after the control plane.
func TestUpgradeOrder(t *testing.T) {
	pids := map[string]int{
		"proxy-n1": 1, "kubelet-n2": 2, "kubelet-n1": 3, "containerd-n1": 4, "scheduler-1": 5, "scheduler-2": 6,
		"controller-manager-1": 7, "apiserver-2": 8, "apiserver-1": 9, "etcd-1": 10, "etcd-2": 11,
	}
	want := []string{
		"etcd-1", "etcd-2", "apiserver-1", "apiserver-2", "controller-manager-1", "scheduler-1", "scheduler-2",
		"containerd-n1", "kubelet-n1", "kubelet-n2", "proxy-n1",
	}
	if got := inOrder(pids); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func installed(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestInstall checks that install replaces all programs, or none of them if one is missing.
func TestInstall(t *testing.T) {
	from, to := installed(t, "new"), installed(t, "old")
	if err := install(from, to); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs() {
		file := filepath.Join(to, name)
		text, err := os.ReadFile(file)
		info, statErr := os.Stat(file)
		if err != nil || statErr != nil || string(text) != "new" || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %q, %v, %v", name, text, err, statErr)
		}
	}
	part, kept := installed(t, "part"), installed(t, "kept")
	if err := os.Remove(filepath.Join(part, "proxy")); err != nil {
		t.Fatal(err)
	}
	if err := install(part, kept); err == nil {
		t.Error("an incomplete set of programs was installed")
	}
	for _, name := range programs() {
		if text, err := os.ReadFile(filepath.Join(kept, name)); err != nil || string(text) != "kept" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestOutdated checks that a process is outdated after its program file was replaced, even by a
// file with the same content.
func TestOutdated(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{BinDir: t.TempDir()}
	program := filepath.Join(c.BinDir, "kubelet")
	put := func(file string) {
		t.Helper()
		if err := errors.Join(copyContent(sleep, file), os.Chmod(file, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	put(program)
	cmd := exec.CommandContext(t.Context(), program, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if old, err := outdated(c, "kubelet-n1", cmd.Process.Pid); err != nil || old {
		t.Errorf("just started: %t, %v", old, err)
	}
	put(program + ".new")
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	if old, err := outdated(c, "kubelet-n1", cmd.Process.Pid); err != nil || !old {
		t.Errorf("after its file was replaced: %t, %v", old, err)
	}
}
