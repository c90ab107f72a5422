// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "testing"

// TestReplicas checks that a single control plane has its store inside the API server. Several
// control planes must share an etcd to which only they can connect, and must use different
// addresses and files.
func TestReplicas(t *testing.T) {
	single := &Config{Name: "one", DataDir: t.TempDir()}
	for _, p := range controlProcesses(single, nil) {
		if p.name != apiserver && p.name != controllerManager && p.name != scheduler {
			t.Errorf("process %s of a single control plane", p.name)
		}
	}
	c := &Config{Name: "three", DataDir: t.TempDir(), ControlPlanes: 3}
	names, listens := map[string]bool{}, map[string]bool{}
	for _, p := range controlProcesses(c, nil) {
		if names[p.name] || p.inherit != nil {
			t.Errorf("process %s: again, or with the machine's socket", p.name)
		}
		names[p.name] = true
		for _, arg := range p.argv {
			for _, flag := range []string{"--bind-address=", "--listen-client-urls=", "--audit-log-path=", "--data-dir="} {
				if at := p.name[:3] + arg; len(arg) > len(flag) && arg[:len(flag)] == flag {
					if listens[at] {
						t.Errorf("process %s: %s is another's", p.name, arg)
					}
					listens[at] = true
				}
			}
		}
	}
	if len(names) != 3*3+etcdMembers {
		t.Errorf("processes: %v", names)
	}
}

// TestSettleReplicas checks that an existing cluster keeps its number of control planes, and that a
// different number is an error.
func TestSettleReplicas(t *testing.T) {
	dir := t.TempDir()
	c := &Config{Name: "two", DataDir: dir, ControlPlanes: 2}
	if err := settleReplicas(c); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(c.dirs().config(), c); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[int]int{0: 2, 2: 2, 1: 0, 3: 0} {
		again := &Config{Name: "two", DataDir: dir, ControlPlanes: asked}
		if err := settleReplicas(again); (err == nil) != (want != 0) || err == nil && again.ControlPlanes != want {
			t.Errorf("asked for %d: %v, %d", asked, err, again.ControlPlanes)
		}
	}
}
