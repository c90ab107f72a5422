// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// newProcesses returns directories of processes and logs.
func newProcesses(t *testing.T, pods ...string) Processes {
	t.Helper()
	p := Processes{Proc: t.TempDir(), Logs: t.TempDir(), Node: "m1"}
	for _, pod := range pods {
		if err := os.Mkdir(filepath.Join(p.Logs, pod), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// add adds a process.
func (p Processes) add(t *testing.T, id int, command, cgroup string) {
	t.Helper()
	dir := filepath.Join(p.Proc, strconv.Itoa(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	line := strings.ReplaceAll(command, " ", "\x00") + "\x00"
	for name, text := range map[string]string{"cmdline": line, "cgroup": cgroup + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProcesses checks that the processes of a static pod are found, and no others with the same command line.
func TestProcesses(t *testing.T) {
	p := newProcesses(t, "kube-system_etcd-m1_0a1b", "kube-system_etcd-m1_aa-bb", "kube-system_etcd-m10_77",
		"default_etcd-m1_88", "kube-system_kube-apiserver-m1_99")
	for id, group := range map[int]string{
		2: "0::/kubepods/burstable/pod0a1b/c1", 3: "0::/system.slice/ssh.service", 4: "0::/kubepods/burstable/pod77/c1",
		5: "0::/kubepods/burstable/pod88/c1", 6: "4:memory:/kubepods/burstable/pod0a1b/c2",
		7: "0::/kubepods.slice/kubepods-podaa_bb.slice/cri-containerd-c3.scope", 8: "0::/kubepods/pod99/c1",
	} {
		p.add(t, id, "etcd --name=m1", group)
	}
	p.add(t, 9, "/usr/local/bin/etcd --name=changed", "0::/kubepods/burstable/pod0a1b/c1")
	p.add(t, 10, "/pause", "0::/kubepods/burstable/pod0a1b/c0")
	p.add(t, 11, "", "0::/kubepods/burstable/pod0a1b/c1") // it has ended
	found, err := p.Find(Etcd)
	if slices.Sort(found); err != nil || !slices.Equal(found, []int{2, 6, 7, 9}) {
		t.Errorf("processes %v, %v", found, err)
	}
	err = p.Check()
	for _, c := range components() {
		if missing := strings.Contains(err.Error(), c+": "); !errors.Is(err, ErrNoProcess) || missing != (c != Etcd) {
			t.Errorf("%s is missing: %t, %v", c, missing, err)
		}
	}
}

// TestKill kills a process, and none that has its ID, but is no process of the pod.
func TestKill(t *testing.T) {
	p := newProcesses(t, "kube-system_etcd-m1_0a1b")
	var commands []*exec.Cmd
	for _, group := range []string{"0::/kubepods/pod0a1b/c1", "0::/kubepods/pod77/c1"} {
		c := exec.CommandContext(t.Context(), "cat") // ends when its input does
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		p.add(t, c.Process.Pid, "etcd", group)
		if commands = append(commands, c); len(commands) == 2 {
			defer in.Close()
		}
	}
	if err := p.Kill(Etcd); err != nil {
		t.Fatal(err)
	}
	if err := commands[0].Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process of the pod: %v", err)
	}
	if err := commands[1].Process.Signal(os.Interrupt); err != nil {
		t.Errorf("the other process has ended: %v", err)
	}
	if err := commands[1].Wait(); err == nil || err.Error() != "signal: interrupt" {
		t.Errorf("the other process: %v", err)
	}
}
