// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
)

// maxGap is how long clients may not be able to write during an upgrade, in seconds.
const maxGap = 3

// copyRelease makes a copy of the release on machines, and changes it by a shell script.
func (c *cell) copyRelease(name, change string, machines ...*lab.Machine) {
	c.Helper()
	for _, m := range machines {
		c.run(m, "cd /usr/lib/keelson && cp -al "+version+" "+name+" && cd "+name+"\n"+change)
	}
}

// awaitReleases waits until the agents have reported a release.
func (c *cell) awaitReleases(m *lab.Machine, name string, machines ...*lab.Machine) {
	c.Helper()
	for _, reporter := range machines {
		// An agent reports when it starts, and every two minutes.
		c.run(reporter, "systemctl restart keelson-agent")
		c.run(m, `until ctl get machine `+reporter.Name()+` -o jsonpath='{.status.releases[*].name}' | grep -qw `+name+
			`; do sleep 0.2; done`)
	}
}

// runs checks that all programs of machines are those of a release, that its images are pinned, and that no unit
// has failed.
func (c *cell) runs(release string, machines ...*lab.Machine) {
	c.Helper()
	for _, m := range machines {
		out := c.run(m, `readlink /usr/lib/keelson/current
			for f in /etc/keelson/*.env; do
				readlink /proc/$(systemctl show --property=MainPID --value keelson-$(basename $f .env))/exe
			done
			systemctl --failed --quiet --plain`)
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(strings.TrimSpace(line)+"/", "/usr/lib/keelson/"+release+"/") {
				c.Errorf("%s: want only programs of release %s:\n%s", m.Name(), release, out)
				break
			}
		}
		images := c.run(m, `/usr/lib/keelson/current/tools/ctr --namespace k8s.io images ls --quiet \
			'labels."io.cri-containerd.pinned",labels."machines.keelson.dev/release"=="`+release+`"'`)
		for _, image := range []string{"/coredns:", "/ingress:", "/pause:"} {
			if !strings.Contains(images, image) {
				c.Errorf("%s: image %s of release %s is not pinned:\n%s", m.Name(), image, release, images)
			}
		}
	}
}

// containers returns when the containers of all pods were started, and how often.
func (c *cell) containers(m *lab.Machine) string {
	c.Helper()
	return c.run(m, `ctl get pods -A -o jsonpath='{range .items[*]}{.metadata.name}{" "}`+
		`{.status.containerStatuses[*].restartCount}{" "}{.status.containerStatuses[*].state.running.startedAt}{"\n"}{end}'`)
}

// undisturbed checks that a client could write all the time, and that no request has failed.
func (c *cell) undisturbed(seen writes) {
	c.Helper()
	if seen.Gap > maxGap || seen.Slowest > requestLimit.Seconds() || len(seen.Failed) > 0 {
		c.Errorf("clients are disturbed: %+v", seen)
	}
}

// TestUpgrade upgrades a cluster of two machines while a client writes. The command, an agent and a
// switcher are killed in the middle. Then the cluster returns to the first release.
func TestUpgrade(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "upgrade")
	c.noStrays()
	machines := make([]*lab.Machine, 2)
	var all sync.WaitGroup
	for i, name := range []string{"m1", "m2"} {
		all.Go(func() { machines[i] = c.machine(name, release) })
	}
	all.Wait()
	first, worker := machines[0], machines[1]
	join := c.initialize(first, "")
	c.join(worker, join)
	c.approvesAtOnce(machines[:1])
	c.run(first, `
		ctl create deployment web --image=nginx --replicas=2
		ctl patch deployment web --patch '{"spec": {"template": {"spec": {"nodeName": "m2", "containers": [
			{"name": "nginx", "imagePullPolicy": "Never"}]}}}}'
		ctl rollout status deployment/web --timeout=60s
		ctl rollout status deployment/coredns --namespace=kube-system --timeout=60s`)
	c.copyRelease("test2", "", machines...)
	c.awaitReleases(first, "test2", machines...)
	c.copyRelease("test3", "", first)
	c.awaitReleases(first, "test3", first)
	if out := c.run(first, "ctl upgrade plan test3 && exit 1; true"); !strings.Contains(out, "not installed on m2") {
		t.Errorf("a release that is not installed on all machines: %s", out)
	}
	c.Log(c.run(first, "ctl upgrade plan test2"))
	before := c.containers(first)

	stop := c.startWriter(first, "/etc/kubernetes/admin.conf")
	c.run(first, "timeout -s KILL 5 ctl upgrade apply test2 || true")
	all.Go(func() {
		began := time.Now()
		out := c.run(first, "/usr/lib/keelson/test2/bin/ctl upgrade apply test2")
		c.Logf("apply, repeated: %s\n%.1f s", out, time.Since(began).Seconds())
		if !strings.Contains(out, "The add-ons are those of release test2.") {
			t.Error("the add-ons were not updated")
		}
	})
	c.run(worker, `until systemctl --quiet is-active keelson-switch; do sleep 0.1; done
		pid() { systemctl show --property=MainPID --value keelson-switch; }
		first=$(pid)
		systemctl kill --signal=KILL keelson-switch
		until next=$(pid) && [ $next != 0 ] && [ $next != $first ]; do sleep 0.1; done
		systemctl kill --signal=KILL keelson-agent keelson-switch`)
	all.Wait()
	c.undisturbed(stop())
	c.runs("test2", machines...)
	if wanted := c.run(first, "ctl get machines -o jsonpath='{.items[*].spec}'"); wanted != "{} {}" {
		t.Errorf("wanted after the end: %s", wanted)
	}
	if after := c.containers(first); after != before {
		t.Errorf("containers were restarted: before\n%s\nafter\n%s", before, after)
	}

	stop = c.startWriter(first, "/etc/kubernetes/admin.conf")
	c.run(first, "timeout -s KILL 5 ctl upgrade rollback || true")
	c.Log(c.run(first, "ctl upgrade rollback"))
	c.undisturbed(stop())
	c.runs(version, machines...)
	if out := c.run(first, "ctl upgrade rollback 2>&1 && exit 1; true"); !strings.Contains(out, "nothing to return to") {
		t.Errorf("a second rollback: %s", out)
	}
	if after := c.containers(first); after != before {
		t.Errorf("containers were restarted: before\n%s\nafter\n%s", before, after)
	}
}

// TestUpgradeFails upgrades a machine to releases that do not work, and turns it off in the middle of an
// upgrade.
func TestUpgradeFails(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "upgradefails")
	m := c.machine("m1", release)
	c.initialize(m, "")
	c.run(m, "ctl rollout status deployment/coredns --namespace=kube-system --timeout=60s")
	for name, change := range map[string]string{
		"bad-apiserver":  "rm bin/apiserver; ln bin/scheduler bin/apiserver", // it does not know the flags
		"bad-containerd": "rm tools/containerd; cp /bin/false tools/containerd",
		"bad-kubelet":    "rm bin/kubelet; cp /bin/false bin/kubelet",
		"bad-ctl":        "rm bin/ctl; cp /bin/false bin/ctl",
		"incomplete":     "rm tools/crun",
		"good":           "",
	} {
		c.copyRelease(name, change, m)
	}
	c.awaitReleases(m, "good", m)
	before := c.containers(m)
	for name, want := range map[string]string{
		"bad-apiserver":  "apiserver: it ends again and again",
		"bad-containerd": "containerd: it ends again and again",
		"bad-kubelet":    "kubelet: it ends again and again",
		"bad-ctl":        "agent: it ends again and again",
		"incomplete":     "tools/crun",
	} {
		t.Run(name, func(t *testing.T) {
			c := &cell{T: t, lab: c.lab}
			stop := c.startWriter(m, "/etc/kubernetes/admin.conf")
			began := time.Now()
			out := c.run(m, "ctl upgrade apply "+name+" 2>&1 && exit 1; true")
			t.Logf("%s\n%.1f s", out, time.Since(began).Seconds())
			stop()
			if !strings.Contains(out, want) {
				t.Errorf("the command does not say %q", want)
			}
			c.runs(version, m)
			if after := c.containers(m); after != before {
				t.Errorf("containers were restarted: before\n%s\nafter\n%s", before, after)
			}
		})
	}
	for name, at := range map[string]string{
		"at its start": "[ -e /usr/lib/keelson/switching ]",
		"in the middle": `[ "$(readlink /proc/$(systemctl show --property=MainPID --value keelson-scheduler)/exe)" = ` +
			"/usr/lib/keelson/good/bin/scheduler ]",
	} {
		t.Run("power failure "+name, func(t *testing.T) {
			c := &cell{T: t, lab: c.lab}
			c.run(m, "ctl upgrade apply good >/dev/null 2>&1 & until "+at+"; do sleep 0.02; done")
			if err := m.PowerOff(); err != nil {
				t.Fatal(err)
			}
			if err := m.PowerOn(c.within()); err != nil {
				t.Fatal(err)
			}
			c.run(m, `while [ -e /usr/lib/keelson/switching ]; do sleep 0.1; done
				until ctl get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
				ctl wait machine/m1 --for=jsonpath='{.status.release}'=good --timeout=60s`)
			c.runs("good", m)
			c.run(m, "ctl upgrade apply good && ctl upgrade rollback")
			c.runs(version, m)
		})
	}
}

// nextRelease returns a directory with programs that claim to be compatible with the next minor version of
// Kubernetes.
func nextRelease(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("testdata/next.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// upgradeLimit is how long a command that changes all machines may take.
const upgradeLimit = 15 * time.Minute

// change runs a command that changes all machines, and returns what it prints, and whether it has succeeded.
func (c *cell) change(m *lab.Machine, command string) (out string, ok bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), upgradeLimit)
	defer cancel()
	began := time.Now()
	all, err := m.Run(ctx, "sh", "-c", "KUBECONFIG=/etc/kubernetes/admin.conf "+command+" 2>&1")
	c.Logf("%s: %v\n%s\n%.1f s", command, err, all, time.Since(began).Seconds())
	return string(all), err == nil
}

// auditAll makes an API server log all requests. At each start, it also logs its version.
func (c *cell) auditAll(m *lab.Machine) {
	c.Helper()
	c.run(m, `printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n' \
			>/etc/kubernetes/audit-policy.yaml
		cat >/usr/local/bin/log-version <<-'EOF'
			#!/bin/sh
			v=$(/usr/lib/keelson/current/bin/apiserver --version | grep -oE 'Kubernetes v1\.[0-9]+')
			echo '"userAgent":"apiserver/'"${v#* }"'"' >>/var/log/kubernetes/audit.log
		EOF
		chmod +x /usr/local/bin/log-version
		mkdir /etc/systemd/system/keelson-apiserver.service.d
		printf '[Service]\nExecStartPre=/usr/local/bin/log-version\n' \
			>/etc/systemd/system/keelson-apiserver.service.d/version.conf
		systemctl daemon-reload
		systemctl restart keelson-apiserver
		until ctl get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done`)
}

// noNewerKubelets checks that no kubelet has used an API server that was older than itself. The audit log has
// the versions of both, except for requests before auditAll.
func (c *cell) noNewerKubelets(m *lab.Machine) {
	c.Helper()
	agents := c.run(m, `cat $(ls -t -r /var/log/kubernetes/audit*) |
		grep -oE '"userAgent":"(apiserver|kubelet)/v1\.[0-9]+' | cut -d'"' -f4 | uniq -c`)
	server, changes := "", 0
	for line := range strings.Lines(agents) {
		fields := strings.Fields(line)
		program, version, _ := strings.Cut(fields[1], "/")
		switch {
		case program == "apiserver" && version != server:
			server = version
			changes++
		case program == "kubelet" && server != "" && version > server:
			c.Errorf("%s: %s requests of kubelets with %s to the API server with %s", m.Name(), fields[0], version, server)
		}
	}
	if changes < 3 {
		c.Errorf("the API server of %s has changed its version %d times", m.Name(), changes-1)
	}
}

// TestUpgradeControlPlanes upgrades a cluster with three control planes and two workers to another minor
// version of Kubernetes, and returns, while clients write through agents. The release does not work on the second
// control plane at first.
func TestUpgradeControlPlanes(t *testing.T) {
	release := releaseDir(t)
	next := nextRelease(t)
	c := newCell(t, "upgradecontrolplanes")
	c.noStrays()
	machines := append(c.controlPlanes(release, 1), c.machine("m5", release))
	first, second, worker, last := machines[0], machines[1], machines[3], machines[4]
	c.join(last, c.run(first, "ctl token create --print-join-command"))
	c.copyRelease("next", "rm bin/apiserver bin/kubelet bin/ctl", machines...)
	for _, m := range machines {
		for _, program := range []string{"apiserver", "kubelet", "ctl"} {
			if err := m.CopyIn(filepath.Join(next, program), "/usr/lib/keelson/next/bin/"+program); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.run(second, "cd /usr/lib/keelson/next/bin; mv kubelet good; cp /bin/false kubelet")
	c.awaitReleases(first, "next", machines...)
	for _, m := range machines[:3] {
		c.auditAll(m)
	}
	c.whole(first, 3)
	c.run(first, `
		ctl create deployment web --image=nginx --replicas=2
		ctl patch deployment web --patch '{"spec": {"template": {"spec": {"nodeName": "m5", "containers": [
			{"name": "nginx", "imagePullPolicy": "Never"}]}}}}'
		ctl rollout status deployment/web --timeout=60s
		ctl rollout status deployment/coredns --namespace=kube-system --timeout=60s`)
	before := c.containers(first)
	conf, err := first.Read("/etc/kubernetes/admin.conf")
	if err != nil {
		t.Fatal(err)
	}
	c.write(worker, adminConfig, string(conf))

	writers := func() (stop func()) {
		a := c.startWriter(first, "/etc/kubernetes/admin.conf")
		b := c.startWriter(worker, adminConfig)
		return func() {
			for _, stop := range []func() writes{a, b} {
				c.undisturbed(stop())
			}
			if after := c.containers(first); after != before {
				t.Errorf("containers were restarted: before\n%s\nafter\n%s", before, after)
			}
		}
	}
	stop := writers()
	out, ok := c.change(first, "/usr/lib/keelson/next/bin/ctl upgrade apply next")
	if ok || !strings.Contains(out, "m2: the release does not work: kubelet: it ends again and again") {
		t.Error("a release that does not work on the second machine")
	}
	stop()
	c.runs("next", first)
	c.runs(version, machines[1:]...)

	c.run(second, "cd /usr/lib/keelson/next/bin; mv good kubelet")
	stop = writers()
	if _, ok := c.change(first, "/usr/lib/keelson/next/bin/ctl upgrade apply next"); !ok {
		t.Error("the upgrade has failed")
	}
	stop()
	c.runs("next", machines...)

	stop = writers()
	if _, ok := c.change(first, "/usr/lib/keelson/next/bin/ctl upgrade rollback"); !ok {
		t.Error("the rollback has failed")
	}
	stop()
	c.runs(version, machines...)
	for _, m := range machines[:3] {
		c.noNewerKubelets(m)
	}
}

// TestAgentRestarts restarts the agent of a machine again and again while clients write through it. No request
// fails. A new agent that does not start makes clients wait, and does not end their connections.
func TestAgentRestarts(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "agentrestarts")
	m := c.machine("m1", release)
	c.initialize(m, "")
	var stops []func() writes
	for range 3 {
		stops = append(stops, c.startWriter(m, "/etc/kubernetes/admin.conf"))
	}
	began := time.Now()
	for range 30 {
		c.run(m, "systemctl restart keelson-agent")
		c.written(m, 9)
	}
	t.Logf("30 restarts: %.1f s", time.Since(began).Seconds())
	c.run(m, `
		mkdir -p /run/systemd/system/keelson-agent.service.d
		printf '[Service]\nExecStart=\nExecStart=/bin/false\n' >/run/systemd/system/keelson-agent.service.d/broken.conf
		systemctl daemon-reload
		systemctl restart keelson-agent || true
		until [ $(systemctl show --property=NRestarts --value keelson-agent) -ge 2 ]; do sleep 0.1; done
		rm /run/systemd/system/keelson-agent.service.d/broken.conf
		systemctl daemon-reload
		systemctl restart keelson-agent`)
	for _, stop := range stops {
		if seen := stop(); len(seen.Failed) > 0 || seen.Done < 30 {
			t.Errorf("clients are disturbed: %+v", seen)
		}
	}
	if n := c.run(m, "journalctl -u keelson-agent | grep -c 'Load balancer of the API servers started'"); n != "32" {
		t.Errorf("the agent has started %s times", n)
	}
	const ends = `journalctl --no-pager --unit=keelson-agent |
		grep -E 'stopped without a restart|does not say whether' || true`
	if out := c.run(m, ends); out != "" {
		t.Errorf("the agent took restarts for its end:\n%s", out)
	}
	c.run(m, "systemctl stop keelson-agent")
	if out := c.run(m, ends); !strings.Contains(out, "stopped without") || strings.Contains(out, "\n") {
		t.Errorf("the agent did not take a stop for its end:\n%s", out)
	}
}
