// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// counters matches kernel settings whose values change by themselves.
var counters = regexp.MustCompile(`^(kernel/ns_last_pid|kernel/random/.*|kernel/pty/nr|kernel/sched_.*|fs/.*-state|` +
	`fs/.*-nr|fs/quota/.*|net/netfilter/nf_conntrack_count|kernel/hostname|vm/stat.*)$`)

// kernelSettings returns the settings of this machine's kernel, and of its network namespace.
func kernelSettings(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	const root = "/proc/sys"
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err != nil || d.IsDir() || counters.MatchString(name) {
			return err
		}
		if b, err := os.ReadFile(path); err == nil { // some cannot be read
			out[name] = string(b)
		}
		return nil
	}))
	if len(out) < 300 {
		t.Fatalf("only %d kernel settings found", len(out))
	}
	return out
}

// namespaces returns the namespaces of a process that are not this process's.
func namespaces(t *testing.T, pid int) []string {
	t.Helper()
	var out []string
	for _, kind := range []string{"net", "mnt", "pid", "uts", "ipc", "cgroup"} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		check(t, err)
		own, err := os.Readlink("/proc/self/ns/" + kind)
		check(t, err)
		if link != own {
			out = append(out, link)
		}
	}
	return out
}

// processes returns the directories in /proc of all other processes.
func processes(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	check(t, err)
	return slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Base(dir) == fmt.Sprint(os.Getpid()) })
}

// mentions returns the processes whose command, mounts or cgroups contain one of the texts.
func mentions(processes []string, texts ...string) []string {
	var out []string
	for _, dir := range processes {
		for _, file := range []string{"cmdline", "mountinfo", "cgroup"} {
			b, _ := os.ReadFile(filepath.Join(dir, file)) // the process may have ended
			for _, text := range texts {
				if strings.Contains(string(b), text) {
					out = append(out, filepath.Join(dir, file)+" has "+text)
				}
			}
		}
	}
	return out
}

// members returns the processes that are in one of the namespaces.
func members(processes []string, namespaces []string) []string {
	var out []string
	for _, dir := range processes {
		links, _ := filepath.Glob(filepath.Join(dir, "ns", "*"))
		for _, link := range links {
			if ns, _ := os.Readlink(link); slices.Contains(namespaces, ns) {
				out = append(out, dir+" is in "+ns)
			}
		}
	}
	return out
}

func TestClose(t *testing.T) {
	need(t)
	settings := kernelSettings(t)
	dir := t.TempDir()
	l, err := New(within(t), options(t.Output(), "close", dir))
	check(t, err)
	closed := false
	defer func() {
		if !closed {
			_ = l.Close()
		}
	}()
	machines := boot(t, l, "m1", "m2", "m3")
	run(t, machines[0], "mount -t tmpfs tmpfs /mnt; ip netns add pod; "+
		"systemd-run --quiet --property=Delegate=yes sh -c 'trap \"\" TERM; sleep 1000; sleep 1000'")
	// A frozen process ends only after it has been thawed.
	run(t, machines[1], "mkdir /sys/fs/cgroup/freezer/frozen; sleep 1000 >/dev/null 2>&1 & "+
		"cd /sys/fs/cgroup/freezer/frozen; echo $! >cgroup.procs; echo FROZEN >freezer.state")
	attachLoop(t, machines[1])
	check(t, machines[2].PowerOff())

	own := namespaces(t, l.pid)
	for _, m := range machines[:2] {
		own = append(own, namespaces(t, m.pid)...)
	}
	// The kernel may give the number of a namespace to a new one later. So only processes that exist
	// now can be in the lab's namespaces.
	before := processes(t)
	texts := []string{l.dir, "/" + filepath.Join(cgroupRoot, l.name)}
	if len(own) != 5+2*6 || len(members(before, own)) < 20 || len(mentions(before, texts...)) < 20 {
		t.Fatalf("the test does not find the lab's processes: %v, %v, %v", own, members(before, own),
			mentions(before, texts...))
	}
	closed = true
	check(t, l.Close())

	left := append(members(before, own), mentions(processes(t), texts...)...)
	if len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
	loops, err := exec.CommandContext(within(t), "losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output()
	if err != nil || strings.Contains(string(loops), filepath.Base(loopFile)) {
		t.Errorf("loop devices left: %v\n%s", err, loops)
	}
	groups, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", cgroupRoot, l.name))
	if err != nil || len(groups) > 0 {
		t.Errorf("cgroups left: %v, %v", groups, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files left: %v, %v", entries, err)
	}
	now := kernelSettings(t)
	for name, value := range settings {
		if now[name] != value {
			t.Errorf("kernel setting %s was %q and is %q", name, value, now[name])
		}
	}
}

// own makes a lab with a machine, prints the process ID of the machine's systemd, and waits for its end.
func own(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := New(ctx, options(os.Stderr, "killed", dir))
	if err != nil {
		return err
	}
	m, err := l.Boot(ctx, "m1")
	if err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Println(m.pid)
	<-ctx.Done()
	return errors.Join(ctx.Err(), l.Close())
}

func TestKilledOwner(t *testing.T) {
	need(t)
	dir := t.TempDir()
	self, err := os.Executable()
	check(t, err)
	owner := exec.CommandContext(within(t), self)
	owner.Env = append(os.Environ(), ownerDir+"="+dir)
	owner.Stderr = t.Output()
	stdout, err := owner.StdoutPipe()
	check(t, err)
	check(t, owner.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	check(t, err)
	pid := 0
	_, err = fmt.Sscan(line, &pid)
	check(t, err)
	own, before := namespaces(t, pid), processes(t)
	if l, err := New(within(t), options(t.Output(), "killed", dir)); err == nil {
		t.Error("two labs have the same name")
		check(t, l.Close())
	}
	check(t, owner.Process.Kill())
	_ = owner.Wait()
	for ctx := within(t); len(members(before, own)) > 0; time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("the machine has outlived its owner: %v", members(before, own))
		}
	}

	l := newLab(t, "killed", dir)
	m := boot(t, l, "m1")[0]
	if got := run(t, m, "systemctl is-system-running"); got != "running" {
		t.Errorf("state %q", got)
	}
}
