// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package shims_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/kubelet/shims"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// start runs a shell script in a bundle under the given process name, and removes the bundle if the
// argument gone is true. It adds the process to proc, a directory that contains only processes of
// the test.
func start(t *testing.T, proc, name, script string, gone bool) *exec.Cmd {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "io.containerd.runtime.v2.task", "k8s.io", "."+id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Args[0], cmd.Dir = "/run/tools/"+name, dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // ignore the error of a process that was killed or already waited for
	})
	if _, err := out.Read(make([]byte, 1)); err != nil { // the script prints when it has reached the state to test
		t.Fatal(err)
	}
	if gone {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.Symlink(filepath.Join("/proc", pid), filepath.Join(proc, pid)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestLost(t *testing.T) {
	const idle = "echo; read x; :"
	clk := clocktesting.NewFakePassiveClock(time.Now())
	proc := t.TempDir()
	f := shims.New(proc, clk)
	lost := start(t, proc, "containerd-shim-runc-v2", idle, true)
	start(t, proc, "containerd-shim-runc-v2", idle, false)
	start(t, proc, "another", idle, true)
	start(t, proc, "containerd-shim-runc-v2", "{ echo; read x; } <&0 & exec 0<&-; wait", true)

	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {time.Minute, 0}, {time.Minute, 1}} {
		clk.SetTime(clk.Now().Add(step.after))
		got, err := f.FindLost()
		if err != nil || len(got) != step.want {
			t.Fatalf("after %v: %v, %v", step.after, got, err)
		}
		if len(got) > 0 && got[0].PID != lost.Process.Pid {
			t.Fatalf("process %d, want %d", got[0].PID, lost.Process.Pid)
		}
	}
	found, err := f.FindLost()
	if err != nil {
		t.Fatal(err)
	}
	other := found[0]
	other.Started++
	if err := f.Kill(other); err != nil {
		t.Fatal(err)
	}
	if err := lost.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("a later process of the same number was killed: %v", err)
	}
	if err := f.Kill(found[0]); err != nil {
		t.Fatal(err)
	}
	if state, err := lost.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v, %v", state, err)
	}
	if err := f.Kill(found[0]); err != nil {
		t.Fatalf("error of a process that has ended: %v", err)
	}
}
