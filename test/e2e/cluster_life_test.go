// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestClusterLife creates a second cluster beside the shared one, adds and removes nodes, takes and
// restores a snapshot, and removes the cluster. Nothing of the cluster may be left on the machine.
func TestClusterLife(t *testing.T) {
	const name = "e2e-second"
	data, kubeconfig := filepath.Join(shared.dir, "second"), filepath.Join(shared.dir, "second.conf")
	links := linksOf(t)
	c := func(args ...string) string { return ctl(t, append([]string{"cluster", "--name", name}, args...)...) }
	k := func(args ...string) string { return ctl(t, append([]string{"--kubeconfig", kubeconfig}, args...)...) }
	up := []string{"up", "--nodes", "1", "--data-dir", data, "--kubeconfig", kubeconfig}
	downAtEnd(t, name)

	c(up...)
	first := c("pids", "-o", "json")
	c(up...)
	if again := c("pids", "-o", "json"); again != first {
		t.Errorf("a second up changed processes:\n%s\n%s", first, again)
	}
	t.Run("clusters are apart", func(t *testing.T) {
		k("create", "namespace", "only-here")
		if out, err := try(t, "", "get", "namespace", "only-here"); err == nil {
			t.Errorf("the other cluster has it: %s", out)
		}
	})
	t.Run("no way out", func(t *testing.T) {
		// The unused address 192.0.2.1 represents all addresses outside the cluster. Nodes and the
		// control plane must not reach it.
		for _, where := range [][]string{{"exec", "n1"}, {"exec"}} {
			args := append([]string{"cluster", "--name", name},
				append(where, "--", "bash", "-c", ": > /dev/tcp/192.0.2.1/80")...)
			if out, err := try(t, "", args...); err == nil || !strings.Contains(out, "connect: ") {
				t.Errorf("%v: %v %s", where, err, out)
			}
			// Connections to unused addresses of pods and Services must be rejected immediately or
			// dropped.
			for _, nobody := range []string{"10.244.200.1", "10.96.200.200"} {
				args := append([]string{"cluster", "--name", name},
					append(where, "--", "timeout", "1", "bash", "-c", ": > /dev/tcp/"+nobody+"/80")...)
				if out, err := try(t, "", args...); err == nil || !strings.Contains(out, "connect: ") &&
					!strings.Contains(err.Error(), "124") && !strings.Contains(out, "124") {
					t.Errorf("%v to %s: %v %s", where, nobody, err, out)
				}
			}
		}
	})
	t.Run("nodes come and go", func(t *testing.T) {
		c("node", "add")
		if out := k("get", "node", "n2"); !strings.Contains(out, " Ready ") {
			t.Errorf("added node:\n%s", out)
		}
		c("node", "remove", "n2")
		// The kubelet of a node that joins with a token requests its own certificates. The request with the
		// token ends when the node has registered.
		c("node", "join", "n2")
		if out := k("get", "csr", "-o", "jsonpath={.items[*].spec.username}"); !strings.Contains(out, "system:node:n2") {
			t.Errorf("certificates were requested by %s", out)
		}
		if out := k("get", "node", "n2"); !strings.Contains(out, " Ready ") {
			t.Errorf("joined node:\n%s", out)
		}
		c("node", "remove", "n2")
		if out, err := try(t, "", "--kubeconfig", kubeconfig, "get", "node", "n2"); err == nil {
			t.Errorf("removed node:\n%s", out)
		}
	})
	t.Run("snapshot and restore", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "snapshot")
		k("create", "configmap", "before")
		c("snapshot", file)
		k("delete", "configmap", "before")
		k("create", "deployment", "after", "--image=nginx:1.27")
		k("rollout", "status", "deployment", "after")
		former := pidsOf(t, c("pids", "-o", "json"))
		c("restore", file)
		for name, pid := range pidsOf(t, c("pids", "-o", "json")) {
			if former[name] == pid && !strings.HasPrefix(name, "containerd-") {
				t.Errorf("%s was not restarted, so it may have objects from before the restore", name)
			}
		}
		k("get", "configmap", "before")
		if out, err := try(t, "", "--kubeconfig", kubeconfig, "get", "deployment", "after"); err == nil {
			t.Errorf("created after the snapshot:\n%s", out)
		}
		// This works only if all processes watch the restored objects.
		k("create", "deployment", "new", "--image=nginx:1.27")
		k("rollout", "status", "deployment", "new")
	})

	c("down")
	t.Run("no trace", func(t *testing.T) {
		for _, file := range []string{data, kubeconfig, "/run/keelson/" + name, "/run/keelson/" + name + ".lock"} {
			if _, err := os.Lstat(file); err == nil {
				t.Errorf("left: %s", file)
			}
		}
		for _, file := range append(cmdlines(t), "/proc/self/mountinfo") {
			b, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(b), data) {
				t.Errorf("left in %s: %q", file, b)
			}
		}
		for _, dir := range groupsOf(t, name) {
			t.Errorf("left: %s", dir)
		}
		if now := linksOf(t); !slices.Equal(now, links) {
			t.Errorf("network links: %v before, %v after", links, now)
		}
	})
}

// linksOf returns the names of the machine's network links outside of clusters.
func linksOf(t *testing.T) []string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// cmdlines returns the /proc files that have the command lines of all processes.
func cmdlines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// groupsOf returns the cgroup directories of a cluster.
func groupsOf(t *testing.T, cluster string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == cluster {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil // a group may be removed during the walk
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// pidsOf parses the output of "ctl cluster pids".
func pidsOf(t *testing.T, out string) (pids map[string]int) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &pids); err != nil || len(pids) == 0 {
		t.Fatalf("%v in %q", err, out)
	}
	return pids
}
