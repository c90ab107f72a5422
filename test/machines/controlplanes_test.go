// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
)

// controlPlanes makes a cluster with three control planes and a number of workers, and returns the machines
// in this order. The flags are those of "ctl init" and "ctl join" on the control planes.
func (c *cell) controlPlanes(release string, workers int, flags ...string) []*lab.Machine {
	c.Helper()
	machines := make([]*lab.Machine, 3+workers)
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() { machines[i] = c.machine(fmt.Sprintf("m%d", i+1), release) })
	}
	all.Wait()
	join := c.initialize(machines[0], strings.Join(flags, " "))
	for _, m := range machines[3:] {
		c.run(m, join+" "+eviction)
	}
	before := c.resourceVersion(machines[0])
	invite := c.inviteControlPlane(machines[0])
	if after := c.resourceVersion(machines[0]); after < before {
		c.Errorf("the resource version was %d before etcd was separated, and is %d afterwards", before, after)
	}
	for i, m := range machines[1:3] {
		out := c.joinControlPlane(m, invite, flags...)
		if warned := strings.Contains(out, "survives the loss of none"); warned != (i == 0) {
			c.Errorf("join of control plane %d: warns that none may be lost: %t", i+2, warned)
		}
	}
	c.approvesAtOnce(machines[:3])
	return machines
}

// approvesAtOnce checks that no controller manager had to try again to approve certificates for machines that joined.
func (c *cell) approvesAtOnce(controlPlanes []*lab.Machine) {
	c.Helper()
	for _, m := range controlPlanes {
		found := c.run(m, `journalctl --no-pager --unit=keelson-controller-manager | grep '"level":"WARN"' |
			grep certificatesigningrequest-approving || true`)
		if found != "" {
			c.Errorf("%s: warnings:\n%s", m.Name(), found)
		}
	}
}

// resourceVersion returns the resource version of a new object.
func (c *cell) resourceVersion(m *lab.Machine) int {
	c.Helper()
	text := c.run(m, `ctl create configmap version >/dev/null
		ctl get configmap version -o jsonpath='{.metadata.resourceVersion}'
		ctl delete configmap version >/dev/null`)
	n, err := strconv.Atoi(text)
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// inviteControlPlane returns the shell command by which machines join as control planes.
func (c *cell) inviteControlPlane(m *lab.Machine) string {
	c.Helper()
	began := time.Now()
	out := c.run(m, "ctl token create --control-plane --print-join-command")
	c.Logf("token create: %.1f s", time.Since(began).Seconds())
	if !strings.Contains(out, " --control-plane --token-file - ") || strings.Contains(out, "\n") {
		c.Fatalf("command %q", out)
	}
	return out
}

// joinControlPlane makes a machine a control plane, and returns what the command prints.
func (c *cell) joinControlPlane(m *lab.Machine, invite string, flags ...string) string {
	c.Helper()
	began := time.Now()
	out := c.run(m, invite+" "+eviction+" "+strings.Join(flags, " "))
	c.Logf("join of %s as a control plane: %.1f s\n%s", m.Name(), time.Since(began).Seconds(), out)
	return out
}

// whole waits until all nodes are ready, all members of etcd answer and all API servers are endpoints.
func (c *cell) whole(m *lab.Machine, servers int) {
	c.Helper()
	began := time.Now()
	c.run(m, fmt.Sprintf(`
		until ctl get --raw /readyz >/dev/null 2>&1 &&
			[ $(ctl get endpointslices -n default kubernetes -o jsonpath='{.endpoints[*].addresses[0]}' | wc -w) = %d ]
		do sleep 0.2; done
		ctl wait --for=condition=Ready nodes --all --timeout=60s`, servers))
	c.Logf("whole after %.1f s", time.Since(began).Seconds())
}

// These are how long writes may stop, in seconds, when a control plane is killed, and when its link is cut. An agent
// gives up a connection after seven seconds without an answer.
const (
	failover    = 3
	cutFailover = 10
)

// TestControlPlanes checks that a cluster with three control planes loses nothing that it has acknowledged
// when one of them fails, and comes back by itself after each failure.
func TestControlPlanes(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "controlplanes")
	c.noStrays()
	machines := c.controlPlanes(release, 1)
	first, second, third, worker := machines[0], machines[1], machines[2], machines[3]
	c.whole(second, 3)
	c.makeAdmin(worker, first)
	c.memory(machines)
	for _, m := range machines {
		found := c.run(m, "journalctl --no-pager | grep -cE '[a-z0-9]{6}\\.[a-z0-9]{16}\\.[0-9a-f]{64}' || true")
		if found != "0" {
			t.Errorf("%s lines of the journal of %s have a token", found, m.Name())
		}
	}

	for _, m := range []*lab.Machine{first, second} {
		gap := c.writes(worker, func() {
			if err := m.PowerOff(); err != nil {
				t.Fatal(err)
			}
		}).Gap
		if gap > failover {
			t.Errorf("%s was killed: no writes for %.1f s", m.Name(), gap)
		}
		began := time.Now()
		c.run(third, `until [ $(ctl get endpointslices -n default kubernetes \
			-o jsonpath='{.endpoints[*].addresses[0]}' | wc -w) = 2 ]; do sleep 0.2; done`)
		t.Logf("%s is not an endpoint after %.1f s more", m.Name(), time.Since(began).Seconds())
		if err := m.PowerOn(c.within()); err != nil {
			t.Fatal(err)
		}
		c.whole(m, 3)
	}
	for i, d := range []lab.Direction{lab.Both, lab.In, lab.Out} {
		m := machines[i]
		gap := c.writes(worker, func() {
			if err := m.Cut(d); err != nil {
				t.Fatal(err)
			}
			c.written(worker, 60)
			if err := m.Heal(); err != nil {
				t.Fatal(err)
			}
		}).Gap
		if gap > cutFailover {
			t.Errorf("the link of %s was cut (%d): no writes for %.1f s", m.Name(), d, gap)
		}
		c.whole(m, 3)
	}
}

// TestControlPlanesBoot checks that a cluster is whole again after a power failure of all machines,
// in whatever order they come back.
func TestControlPlanesBoot(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "controlplanesboot")
	machines := c.controlPlanes(release, 1)
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}} {
		for _, m := range machines {
			if err := m.PowerOff(); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		began := time.Now()
		for _, i := range order {
			// A machine has not booted until its etcd runs, which needs another one.
			all.Go(func() {
				if err := machines[i].PowerOn(c.within()); err != nil {
					t.Error(err)
				}
			})
			c.awaitNetwork(machines[i])
		}
		all.Wait()
		c.whole(machines[1], 3)
		t.Logf("order %v: whole %.1f s after the first machine was turned on", order, time.Since(began).Seconds())
		if d := time.Since(began); d > time.Minute {
			t.Errorf("order %v: not whole before %s", order, d)
		}
	}
}

// awaitNetwork waits until a machine that boots answers in the lab's network. No program listens at the port.
func (c *cell) awaitNetwork(m *lab.Machine) {
	c.Helper()
	script := fmt.Sprintf(`until timeout 1 bash -c '</dev/tcp/%s/1' 2>&1 | grep -q refused; do sleep 0.1; done`,
		m.Address())
	if _, err := c.lab.Run(c.within(), "bash", "-c", script); err != nil {
		c.Fatal(err)
	}
}

// TestControlPlaneTokens checks that a machine does not join as a control plane with a wrong or expired
// token, and that nothing is written to it. The conversion of etcd is interrupted several times first.
func TestControlPlaneTokens(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "controlplanetokens")
	first, second := c.machine("m1", release), c.machine("m2", release)
	node := c.initialize(first, "")
	c.run(first, "ctl create configmap old")
	for _, seconds := range []string{"0.1", "0.3", "0.6", "1", "1.5", "2"} {
		c.run(first, "timeout -s KILL "+seconds+" ctl token create --control-plane >/dev/null 2>&1 || true")
	}
	invite := c.inviteControlPlane(first)
	c.run(first, "ctl get configmap old && ctl wait --for=condition=Ready node m1 --timeout=30s")
	short := c.run(first, "ctl token create --control-plane --ttl 1s --print-join-command")
	c.run(first, `until [ -z "$(ctl get roles -n kube-system -o name | grep keelson:join:`+
		regexp.MustCompile(`^echo (.{6})`).FindStringSubmatch(short)[1]+`)" ]; do sleep 0.2; done`)
	key := regexp.MustCompile(`[0-9a-f]{64} \|`)
	for name, tc := range map[string]struct{ command, want string }{
		"wrong third part":  {key.ReplaceAllString(invite, strings.Repeat("0", 64)+" |"), "the third part of the token"},
		"expired":           {short, "Unauthorized"},
		"not control plane": {strings.Replace(invite, " --control-plane", "", 1), "add --control-plane"},
		"token of a node":   {node + " --control-plane", "not one for control planes"},
	} {
		out := c.run(second, "if { "+tc.command+"; } 2>&1; then exit 1; fi\n"+
			"test ! -e /etc/keelson && test ! -e /etc/kubernetes")
		if !strings.Contains(out, tc.want) {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, seconds := range []string{"0.5", "1.5", "2.5", "4"} {
		c.run(second, strings.Replace(invite, "ctl join", "timeout -s KILL "+seconds+" ctl join", 1)+" "+eviction+
			" --ignore-preflight-errors=all >/dev/null 2>&1 || true")
	}
	c.joinControlPlane(second, invite, "--ignore-preflight-errors=all")
	c.whole(first, 2)
}

// TestReplaceControlPlane checks that control planes can be removed, and that one that has lost its disk
// joins again with one command.
func TestReplaceControlPlane(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "replacecontrolplane")
	machines := c.controlPlanes(release, 1)
	first, second, third := machines[0], machines[1], machines[2]
	c.whole(first, 3)
	invite := c.inviteControlPlane(first)

	if err := second.Cut(lab.Both); err != nil {
		t.Fatal(err)
	}
	c.reset(second)
	if err := second.Heal(); err != nil {
		t.Fatal(err)
	}
	c.joinControlPlane(second, invite)
	c.whole(first, 3)

	c.run(third, `systemctl stop 'keelson-*'; rm -rf /var/lib/etcd /etc/kubernetes`)
	if out := c.run(third, "if { "+invite+"; } 2>&1; then exit 1; fi"); !strings.Contains(out, "preflight checks") {
		t.Errorf("join on a machine with old files: %s", out)
	}
	c.joinControlPlane(third, invite, "--ignore-preflight-errors=all")
	c.whole(first, 3)

	// Without the second one, the removal of the first one would leave one of two.
	if err := second.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if out := c.run(first, "ctl node remove m1 2>&1 && exit 1 || true"); !strings.Contains(out, "too few members") {
		t.Errorf("removal of a member that is needed: %s", out)
	}
	c.run(first, "ctl node remove m2 --force")
	c.run(first, "ctl node remove m3 --delete-emptydir-data")
	c.reset(third)
	c.whole(first, 1)
	// The kubelet of m3 may have registered its node again before the reset.
	if out := c.run(first, "ctl get nodes -o name"); strings.Contains(out, "m2") {
		t.Errorf("nodes %s", out)
	}
}
