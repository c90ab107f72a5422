// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
)

// cutOffManifest has what the test of control planes that are cut off runs.
//
//go:embed testdata/cutoff.yaml
var cutOffManifest string

// cutOff is a cluster with three control planes, m1 to m3, and two workers. The control planes m2 and m3 are cut
// off while the cluster is restored on m1.
type cutOff struct {
	*backedUp
	control, workers []*lab.Machine
}

// newCutOff makes the cluster. Its third control plane joins after the backup.
func newCutOff(t *testing.T, name string) *cutOff {
	release := releaseDir(t)
	c := &cutOff{backedUp: &backedUp{cell: newCell(t, name)}}
	machines := make([]*lab.Machine, 5)
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() { machines[i] = c.machine(fmt.Sprintf("m%d", i+1), release) })
	}
	all.Wait()
	c.control, c.workers, c.first = machines[:3], machines[3:], machines[0]
	join := c.initialize(c.first, "")
	for _, m := range c.workers {
		c.join(m, join)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*lab.Machine{c.first, c.control[1], c.workers[0]} {
		if err := m.CopyIn(self, observerProgram); err != nil {
			t.Fatal(err)
		}
	}
	invite := c.inviteControlPlane(c.first)
	c.joinControlPlane(c.control[1], invite)
	c.importImages(c.control[1])
	c.write(c.first, "/root/cutoff.yaml", cutOffManifest)
	c.run(c.first, writePassphrase+`ctl cordon m1
		ctl apply -f /root/cutoff.yaml
		ctl rollout status statefulset/id --timeout=60s
		ctl uncordon m1`)
	c.file = c.run(c.first, "ctl backup create --dir=/var/backups/keelson "+passphrase)
	c.joinControlPlane(c.control[2], invite)
	c.importImages(c.control[2])
	c.whole(c.first, 3)
	return c
}

// startInformer starts an informer on a machine.
func (c *cutOff) startInformer(m *lab.Machine) {
	c.Helper()
	conf, err := c.first.Read("/etc/kubernetes/admin.conf")
	if err != nil {
		c.Fatal(err)
	}
	c.write(m, "/root/admin.conf", string(conf))
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.Run(ctx, "env", informerConfig+"=/root/admin.conf", observerProgram) // the file says whether it works
	}()
	c.Cleanup(func() { cancel(); <-ended })
}

// informed waits until the informer on a machine has exactly the given content.
func (c *cutOff) informed(m *lab.Machine, want ...string) {
	c.Helper()
	c.run(m, fmt.Sprintf("timeout 60 sh -c 'until [ \"$(sort %s | tr \"\\n\" \" \")\" = \"%s \" ]; do sleep 0.1; done'",
		informerFile, strings.Join(want, " ")))
}

// lose makes changes after the backup. It also runs pods that the backup does not have on m2, m3 and a worker,
// and moves the pod id-0 to m3. It returns the containers of the pods.
func (c *cutOff) lose() map[*lab.Machine]string {
	c.Helper()
	c.run(c.first, `ctl delete configmap deleted
		ctl patch configmap changed --patch '{"data": {"text": "lost"}}'
		ctl create configmap added --from-literal=text=lost
		ctl cordon m1 m2 m4 m5
		old=$(ctl get pod id-0 --output=jsonpath='{.metadata.uid}')
		ctl delete pod id-0
		until ctl get pod id-0 --output=jsonpath='{.metadata.uid}' | grep -qv "$old"; do sleep 0.2; done
		ctl wait pod/id-0 --for=condition=Ready --timeout=60s
		[ "$(ctl get pod id-0 --output=jsonpath='{.spec.nodeName}')" = m3 ]
		ctl uncordon m1 m2 m4 m5`)
	lost := map[*lab.Machine]string{}
	for _, m := range []*lab.Machine{c.control[1], c.control[2], c.workers[0]} {
		c.run(c.first, fmt.Sprintf(`ctl run lost-%[1]s --image=busybox --image-pull-policy=Never --labels=app=lost-%[1]s \
			--overrides='{"spec": {"nodeName": "%[1]s", "terminationGracePeriodSeconds": 1}}' -- sleep 10000
			ctl wait pod/lost-%[1]s --for=condition=Ready --timeout=60s`, m.Name()))
		_, lost[m] = c.container(c.first, "app=lost-"+m.Name())
	}
	c.config = c.run(c.first, "ctl get configmap changed --output=json")
	return lost
}

// part cuts m2 and m3 off.
func (c *cutOff) part() {
	c.Helper()
	if err := c.lab.Part(append([]*lab.Machine{c.first}, c.workers...), c.control[1:]); err != nil {
		c.Fatal(err)
	}
}

func (c *cutOff) heal() {
	c.Helper()
	if err := c.lab.Part(nil, nil); err != nil {
		c.Fatal(err)
	}
}

// acknowledge writes a ConfigMap to the API server of a machine, which answers as soon as etcd there has a
// leader.
func (c *cell) acknowledge(m *lab.Machine, name string) {
	c.Helper()
	c.run(m, fmt.Sprintf(`timeout 60 sh -c 'until ctl --server=https://%s:6443 --request-timeout=2s \
		create configmap %s --from-literal=text=lost; do sleep 0.2; done'`, m.Address(), name))
}

// listens checks that the workers have renewed their leases since a time, and that they know m1 only.
func (c *cutOff) listens(since time.Time) {
	c.Helper()
	for _, m := range c.workers {
		c.run(c.first, fmt.Sprintf(`until [ "$(date -d "$(ctl get lease %s --namespace=kube-node-lease \
			--output=jsonpath='{.spec.renewTime}')" +%%s)" -gt %d ]; do sleep 0.1; done`, m.Name(), since.Unix()))
		c.run(m, fmt.Sprintf(`timeout 60 sh -c 'until [ "$(cat /var/lib/keelson/servers.json)" = "[\"%s:6443\"]" ]; do
			sleep 0.2; done'`, c.first.Address()))
	}
}

// rejoined waits until the given control planes are one cluster of the given epoch, which is another one than
// that with the ID old. It returns the ID of the cluster.
func (c *cutOff) rejoined(began time.Time, old uint64, machines ...*lab.Machine) (cluster uint64) {
	c.Helper()
	epoch := c.run(c.first, "cat /var/lib/keelson/store-epoch")
	for deadline := time.Now().Add(limit); ; {
		seen := c.observed(c.first, machines...)
		first := seen[c.first.Address().String()]
		done := first.Epoch == epoch && first.Cluster != old && first.Cluster != 0
		for _, o := range seen {
			done = done && o == first && o.Voters == len(machines) && o.Members == len(machines)
		}
		if done {
			c.Logf("%d control planes with epoch %s %.1f s after the links were healed", len(machines), epoch,
				time.Since(began).Seconds())
			c.whole(c.first, len(machines))
			return first.Cluster
		}
		if time.Now().After(deadline) {
			for _, m := range machines {
				out, _ := m.Run(c.within(), "journalctl", "--no-pager", "--lines=30", "--unit=keelson-rejoin",
					"--unit=keelson-agent", "--unit=keelson-etcd")
				c.Logf("%s:\n%s", m.Name(), out)
			}
			c.Fatalf("the control planes say %+v, want the epoch %s", seen, epoch)
		}
	}
}

// works checks that each control plane has the restored state, and that what one acknowledges is on all.
func (c *cutOff) works(name string, machines ...*lab.Machine) {
	c.Helper()
	for _, m := range machines {
		c.acknowledge(m, name+"-"+m.Name())
	}
	for _, m := range machines {
		got := c.run(m, fmt.Sprintf("ctl --server=https://%s:6443 get configmaps --output=name", m.Address()))
		for _, other := range machines {
			if !slices.Contains(strings.Fields(got), "configmap/"+name+"-"+other.Name()) {
				c.Errorf("%s does not have what %s has acknowledged: %s", m.Name(), other.Name(), got)
			}
		}
		if strings.Contains(got, "acknowledged") {
			c.Errorf("%s has something of a lost history: %s", m.Name(), got)
		}
	}
}

// identityRun is the time in which a container of an identity ran on a machine.
type identityRun struct {
	machine     string
	first, last float64
}

// once checks that no identity ran twice at the same time.
func (c *cutOff) once() {
	c.Helper()
	runs := map[string]map[string]*identityRun{} // by identity and by run
	for _, m := range slices.Concat(c.control, c.workers) {
		for line := range strings.Lines(c.run(m, "cat /root/log/identities 2>/dev/null || true")) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue // a write that was cut off
			}
			at, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				continue
			}
			if runs[f[0]] == nil {
				runs[f[0]] = map[string]*identityRun{}
			}
			r := runs[f[0]][f[1]]
			if r == nil {
				r = &identityRun{m.Name(), at, at}
				runs[f[0]][f[1]] = r
			}
			r.last = max(r.last, at)
		}
	}
	if len(runs) != 3 {
		c.Errorf("%d identities ran", len(runs))
	}
	for id, all := range runs {
		for a, x := range all {
			c.Logf("%s ran on %s from %.1f to %.1f", id, x.machine, x.first, x.last)
			for b, y := range all {
				if a < b && x.first <= y.last && y.first <= x.last {
					c.Errorf("%s ran twice: %+v and %+v", id, *x, *y)
				}
			}
		}
	}
}

// TestRestoreCutOff restores a backup on one of three control planes while the other two are cut off, and go on
// as the majority of the old store. Nothing on the side of the restored one listens to them. When the links
// are healed, they join the restored cluster by themselves. Then the cluster is restored from the store of
// one control plane, first while the others are cut off, and are killed while they join, and then while they
// are off. Then another control plane restores the store that it has kept, so that the first one joins. At last, that
// one stops nothing while it cannot join, is reset while it joins, and leaves nothing in etcd.
func TestRestoreCutOff(t *testing.T) {
	c := newCutOff(t, "restorecutoff")
	c.startInformer(c.workers[0])
	c.informed(c.workers[0], "changed=kept", "deleted=kept")
	lost := c.lose()
	c.informed(c.workers[0], "added=lost", "changed=lost")
	cluster := c.observed(c.first, c.first)[c.first.Address().String()].Cluster
	c.part()
	c.acknowledge(c.control[1], "acknowledged-before")
	c.latest = c.revision(c.control[1])

	began := time.Now()
	var informer sync.WaitGroup
	informer.Go(func() {
		c.informed(c.workers[0], "changed=kept", "deleted=kept")
		t.Logf("the informer has the restored state %.1f s after the start of the restore", time.Since(began).Seconds())
	})
	out := c.timed(c.first, "restore", "ctl restore --force --also-nodes=m3 "+passphrase+" "+c.file)
	for _, want := range []string{"join by themselves as soon as they reach this machine: m2.",
		"have not reported yet: m2, m3"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	informer.Wait()
	c.listens(time.Now())
	c.clients()
	c.gone(c.workers[0], lost[c.workers[0]])
	t.Logf("the unknown pod has ended %.1f s after the start of the restore", time.Since(began).Seconds())
	c.acknowledge(c.control[2], "acknowledged-after")
	for _, m := range c.control[1:] { // so that they must remember the restored one
		c.run(m, fmt.Sprintf("timeout 60 sh -c 'while grep %s:6443 /var/lib/keelson/servers.json; do sleep 0.2; done'",
			c.first.Address()))
	}
	c.once()

	began = time.Now()
	c.heal()
	cluster = c.rejoined(began, cluster, c.control...)
	c.gone(c.control[1], lost[c.control[1]])
	c.gone(c.control[2], lost[c.control[2]])
	c.run(c.first, "ctl rollout status statefulset/id --timeout=60s")
	t.Logf("all is well %.1f s after the links were healed", time.Since(began).Seconds())
	c.works("first", c.control...)
	c.once()
	for _, m := range c.control[1:] {
		c.run(m, "test -d /var/lib/etcd/before-restore-elsewhere-*/member && ! test -e /var/lib/keelson/rejoin.json")
		c.run(c.first, fmt.Sprintf(`ctl wait machine/%s --for=condition=Rejoined --timeout=30s
			ctl get node %[1]s --output=jsonpath='{.metadata.labels}' | grep -q control-plane`, m.Name()))
	}

	t.Log("from the data directory, with control planes that are killed while they join")
	c.part()
	c.acknowledge(c.control[1], "acknowledged-again")
	c.timed(c.first, "restore", "ctl restore --force --from-data-dir=/var/lib/etcd")
	began = time.Now()
	c.heal()
	var all sync.WaitGroup
	all.Go(func() { c.killRejoin(c.control[1]) })
	all.Go(func() { c.failRejoin(c.control[2]) })
	all.Wait()
	cluster = c.rejoined(began, cluster, c.control...)
	c.works("second", c.control...)
	c.once()

	t.Log("after a power failure, and without one of them")
	for _, m := range c.control[1:] {
		if err := m.PowerOff(); err != nil {
			t.Fatal(err)
		}
	}
	c.timed(c.first, "restore", "ctl restore --force --from-data-dir=/var/lib/etcd")
	c.run(c.first, "ctl node fence m3 --force; ctl node remove m3 --delete-emptydir-data")
	for _, m := range c.workers { // a restore on the removed machine must not concern them
		c.run(m, fmt.Sprintf(`cd /var/lib/keelson
			timeout 60 sh -c 'while grep %s:6443 servers.json former-servers.json; do sleep 0.2; done'`, c.control[2].Address()))
	}
	began = time.Now()
	if err := c.control[1].PowerOn(c.within()); err != nil {
		t.Fatal(err)
	}
	c.control = c.control[:2]
	cluster = c.rejoined(began, cluster, c.control...)
	c.works("third", c.control...)

	t.Log("from the store that a control plane has kept, on that one")
	c.first = c.control[1]
	kept := strings.Fields(c.run(c.first, "ls -d /var/lib/etcd/before-restore-elsewhere-* | sort --version-sort"))
	if len(kept) != 2 {
		t.Fatalf("m2 has kept %q, want the stores of the last two of three restores", kept)
	}
	c.timed(c.first, "restore", `ctl restore --force --from-data-dir=`+kept[1]+`
		ctl node fence m3 --force; ctl node remove m3 --delete-emptydir-data`)
	cluster = c.rejoined(time.Now(), cluster, c.control...)
	c.works("fourth", c.control...)
	out = c.run(c.first, "ctl get configmap second-m1 third-m1 2>&1 || true")
	if !strings.Contains(out, "second-m1 ") || !strings.Contains(out, `"third-m1" not found`) {
		t.Errorf("the store that m2 has kept is not back: %s", out)
	}
	c.once()

	t.Log("with a control plane that cannot join, and is reset while it joins")
	const credentials = "/etc/kubernetes/pki/apiserver-etcd-client.crt"
	c.run(c.control[0], "mv "+credentials+" /root/client.crt")
	c.timed(c.first, "restore", "ctl restore --force --from-data-dir=/var/lib/etcd")
	c.run(c.first, `timeout 60 sh -c 'until ctl get machine m1 \
		--output=jsonpath="{.status.conditions[?(@.type==\"Rejoined\")].message}" | grep "no certificates"; do sleep 0.2; done'`)
	c.run(c.control[0], `systemctl is-active keelson-etcd keelson-apiserver
		test -d /var/lib/etcd/member
		mv /root/client.crt `+credentials)
	c.resetRejoin(c.control[0])
	c.run(c.first, "ctl node fence m1 --force; ctl node remove m1 --force")
	c.rejoined(time.Now(), cluster, c.first)
}

// untilRejoins waits until a machine has begun to join.
const untilRejoins = "timeout 60 sh -c 'until test -e /var/lib/keelson/rejoin.json; do sleep 0.05; done'\n"

// killRejoin kills the programs that make a control plane join, several times.
func (c *cell) killRejoin(m *lab.Machine) {
	c.Helper()
	c.run(m, untilRejoins+`for i in 0.2 0.5 1 2; do
			sleep $i
			systemctl kill --signal=KILL keelson-rejoin keelson-agent || true
		done`)
}

// resetRejoin resets a machine as soon as its etcd is about to be a member of the restored cluster without a vote.
func (c *cell) resetRejoin(m *lab.Machine) {
	c.Helper()
	out := c.run(m, `timeout 90 sh -c 'until grep --quiet "Join\|Vote" /var/lib/keelson/rejoin.json; do sleep 0.02; done'
		cat /var/lib/keelson/rejoin.json
		ctl reset --force`)
	if c.Log(out); strings.Contains(out, "etcd: ") || strings.Contains(out, "membership") {
		c.Error("the machine remains a member of etcd")
	}
}

// failRejoin turns a machine off and on while its control plane joins.
func (c *cell) failRejoin(m *lab.Machine) {
	c.Helper()
	c.run(m, untilRejoins)
	if err := m.PowerOff(); err != nil {
		c.Error(err)
		return
	}
	if err := m.PowerOn(c.within()); err != nil {
		c.Error(err)
	}
}
