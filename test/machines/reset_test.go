// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
)

// initCommand creates a cluster.
const initCommand = "ctl init " + eviction

// snapshotScript prints what a machine has, without what changes by itself. Each line begins with its
// kind.
//
//go:embed testdata/snapshot.sh
var snapshotScript string

// podsManifest has pods with volumes of all kinds, and with other things that a node must set up.
//
//go:embed testdata/pods.yaml
var podsManifest string

// snapshot returns what a machine has, as sorted lines.
func (c *cell) snapshot(m *lab.Machine) []string {
	c.Helper()
	lines := slices.DeleteFunc(strings.Split(c.run(m, snapshotScript), "\n"), allowed.MatchString)
	slices.Sort(lines)
	return lines
}

// allowed matches what may differ. systemd has done it for its own purposes, and does not undo it when
// the last unit that needs it is gone.
var allowed = regexp.MustCompile(`^(cgroup /sys/fs/cgroup/[a-z,]+/init\.scope|unit network-online\.target .*)$`)

// same checks that a machine is as it was. It tries several times, because systemd notices only after a
// while that file systems are not mounted any more.
func (c *cell) same(m *lab.Machine, before []string) {
	c.Helper()
	changes := difference(before, c.snapshot(m))
	for attempts := 20; len(changes) > 0 && attempts > 0; attempts-- {
		time.Sleep(250 * time.Millisecond)
		changes = difference(before, c.snapshot(m))
	}
	if len(changes) > 0 {
		c.Errorf("%s is not as it was before:\n%s", m.Name(), strings.Join(changes, "\n"))
	}
}

// difference returns the lines that are only in before or only in after.
func difference(before, after []string) (out []string) {
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, "new:  "+line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			out = append(out, "gone: "+line)
		}
	}
	return out
}

// reset resets a machine.
func (c *cell) reset(m *lab.Machine) {
	c.Helper()
	began := time.Now()
	c.Logf("%s\nreset: %.1f s", c.run(m, "ctl reset --force"), time.Since(began).Seconds())
}

// pods runs the pods of podsManifest.
func (c *cell) pods(m *lab.Machine) {
	c.Helper()
	if _, err := m.RunInput(c.within(), strings.NewReader(podsManifest), "tee", "/tmp/pods.yaml"); err != nil {
		c.Fatal(err)
	}
	c.run(m, "ctl apply -f /tmp/pods.yaml")
	c.run(m, "ctl wait --for=condition=Ready pod --all --timeout=150s || { ctl describe pods; exit 1; }")
}

// TestReset checks that "ctl reset" leaves nothing behind, whatever state the machine is in.
func TestReset(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "reset")
	m := c.machine("m1", release)
	if out := c.run(m, "ctl reset"); !strings.Contains(out, "nothing to remove") {
		t.Errorf("a machine that is not part of a cluster: %q", out)
	}
	before := c.snapshot(m)
	for _, step := range []struct{ name, prepare string }{
		{"running pods", ""},
		{"no runtime", "systemctl kill --signal=KILL --kill-who=main keelson-containerd"},
		{"broken runtime", "systemctl stop keelson-containerd; echo broken > /etc/containerd/config.toml; " +
			"rm /var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"},
		{"dead programs", "systemctl kill --signal=KILL 'keelson-*'; rm /etc/keelson/*.env"},
		{"scheduled backups", "echo 'correct horse battery' > /mnt/p && " +
			"ctl backup schedule --dir=/mnt/backups --passphrase-file=/mnt/p && systemctl start keelson-backup && " +
			"rm -r /mnt/p /mnt/backups"},
		{"interrupted reset", "timeout -s KILL 0.7 ctl reset --force || true"},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			c := &cell{T: t, lab: c.lab}
			c.run(m, initCommand)
			c.pods(m)
			if step.prepare != "" {
				c.run(m, step.prepare)
			}
			c.reset(m)
			c.same(m, before)
		}) {
			t.FailNow()
		}
	}
	for _, seconds := range []string{"0.2", "0.5", "1", "3"} {
		t.Run("init interrupted after "+seconds+" s", func(t *testing.T) {
			c := &cell{T: t, lab: c.lab}
			c.run(m, "timeout -s KILL "+seconds+" "+initCommand+" || true")
			c.reset(m)
			c.same(m, before)
		})
	}
}

// TestResetWorker checks that a worker can be reset without an API server, and join again.
func TestResetWorker(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "resetworker")
	first, worker := c.machine("m1", release), c.machine("m2", release)
	before := c.snapshot(worker)
	join := c.initialize(first, "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule")
	c.run(worker, join+" "+eviction)
	c.pods(first)
	if out, err := worker.Run(c.within(), "/usr/lib/keelson/"+version+"/bin/ctl", "reset"); err == nil {
		t.Errorf("a reset that nobody has confirmed: %s", out)
	}
	if err := first.PowerOff(); err != nil {
		t.Fatal(err)
	}
	c.reset(worker)
	c.same(worker, before)
	if err := first.PowerOn(c.within()); err != nil {
		t.Fatal(err)
	}
	c.run(first, "ctl wait --for=create node/m1 --timeout=60s && ctl delete node m2")
	c.run(worker, join+" "+eviction)
}

// TestResetKeepsFileSystems checks that file systems that the operator has mounted at directories of the
// machine's programs are emptied, but remain, and that the files of a file system that is mounted below
// such a directory are not deleted.
func TestResetKeepsFileSystems(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "resetfilesystems")
	m := c.machine("m1", release)
	c.run(m, `mkdir -p /var/local/kubelet /var/lib/kubelet /var/lib/etcd /srv/data
		mount --bind /var/local/kubelet /var/lib/kubelet
		mount -t tmpfs -o mode=700 tmpfs /var/lib/etcd
		echo text > /srv/data/file`)
	before := c.snapshot(m)
	c.run(m, initCommand)
	c.pods(m)
	c.run(m, "mkdir /var/lib/kubelet/data; mount --bind /srv/data /var/lib/kubelet/data")
	c.reset(m)
	c.same(m, before)
}
