// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEmulating checks that emulating adds, changes and removes the flag --emulated-version, and
// keeps other flags.
func TestEmulating(t *testing.T) {
	plain, earlier := []string{"scheduler", "--v=2"}, []string{"scheduler", "--emulated-version=1.35", "--v=2"}
	for _, argv := range [][]string{plain, earlier} {
		if got := emulating(argv, "1.36"); !slices.Equal(got, []string{"scheduler", "--v=2", "--emulated-version=1.36"}) {
			t.Errorf("%q with 1.36: %q", argv, got)
		}
		if got := emulating(argv, ""); !slices.Equal(got, plain) {
			t.Errorf("%q without emulation: %q", argv, got)
		}
	}
	if earlier[1] != "--emulated-version=1.35" {
		t.Error("the argument was changed")
	}
}

// TestEmulatedByProcess checks that the release that a process emulates is read from its command
// line.
func TestEmulatedByProcess(t *testing.T) {
	for flag, version := range map[string]string{"--emulated-version=1.36": "1.36", "--v=2": ""} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo started; read line", "sh", flag)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Wait until the process has started, because /proc shows its command line only then.
		if _, err := io.ReadFull(stdout, make([]byte, len("started\n"))); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"", "1.36", "1.37"} {
			if got, err := emulates(cmd.Process.Pid, want); err != nil || got != (want == version) {
				t.Errorf("%s: emulates %q: %t, %v", flag, want, got, err)
			}
		}
		if err := stdin.Close(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // an error is expected: the shell's read fails at the end of its input
		if got, err := emulates(cmd.Process.Pid, "1.37"); err != nil || !got {
			t.Errorf("ended process: %t, %v", got, err)
		}
	}
}

// TestSetEmulated checks that the emulated release is set for the next start of the control plane's
// processes, is recorded in the cluster's files, and is kept by ctl cluster up.
func TestSetEmulated(t *testing.T) {
	c := &Config{Name: "test", DataDir: t.TempDir(), BinDir: "bin"}
	d := dirs{data: c.DataDir, run: t.TempDir()}
	s := &supervisor{cfg: &Config{}, control: map[string]*kept{}, nodes: map[string]*nodeHost{}}
	for _, name := range []string{"apiserver-1", "controller-manager-1", "scheduler-1", "etcd-1"} {
		s.control[name] = &kept{keeper: &keeper{process: process{name: name, argv: []string{name}}}}
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(d.run, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.routes()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	for _, version := range []string{"1.36", "1.36", ""} {
		st := s.status()
		if err := setEmulated(t.Context(), c, d, &st, version); err != nil {
			t.Fatal(err)
		}
		for name, k := range s.control {
			has := slices.Contains(k.command(), "--emulated-version="+version)
			if want := version != "" && name != "etcd-1"; has != want || len(k.command()) > 2 {
				t.Errorf("%q: %s runs %q", version, name, k.command())
			}
		}
		if got := s.status().Config.EmulatedVersion; got != version {
			t.Errorf("the supervisor has %q, want %q", got, version)
		}
		again := &Config{DataDir: c.DataDir}
		if err := settleReplicas(again); err != nil || again.EmulatedVersion != version {
			t.Errorf("ctl cluster up keeps %q, %v; want %q", again.EmulatedVersion, err, version)
		}
	}
	old := &Status{Supervisor: 7}
	if err := setEmulated(t.Context(), c, d, old, ""); err != nil {
		t.Errorf("an old supervisor without emulation: %v", err)
	}
	err = setEmulated(t.Context(), c, d, old, "1.36")
	if !errors.Is(err, errOldSupervisor) || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("an old supervisor: %v", err)
	}
}
