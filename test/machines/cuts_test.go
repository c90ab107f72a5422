// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
	"keelson.dev/keelson/test/machines/lab"
)

// cutsManifest has what runs while links are cut.
//
//go:embed testdata/cuts.yaml
var cutsManifest string

const (
	shortCut = 10 * time.Second
	longCut  = 8 * time.Minute
	// busy is how much longer than it should the cluster may take for something in a test, because all
	// machines of a lab share the processors of one. The figures in the test's output are those that count.
	busy = 30 * time.Second
	// defaultToleration is how long pods stay on a node that is unreachable.
	defaultToleration = 300 * time.Second
)

// cutCell is a cluster with three control planes and two workers. The machines share this machine's limit of inotify
// instances. Each machine needs about 15 of them.
type cutCell struct {
	*cell
	planes, workers []*lab.Machine
}

// newCutCell makes the cluster and runs the pods of cutsManifest.
func newCutCell(t *testing.T) *cutCell {
	release := releaseDir(t)
	c := &cutCell{cell: newCell(t, "cuts")}
	c.noStrays()
	machines := c.controlPlanes(release, 1)
	c.planes, c.workers = machines[:3], machines[3:]
	first := c.planes[0]
	join := c.run(first, "ctl token create --print-join-command")
	m := c.machine("m5", release)
	c.run(m, join+" "+eviction)
	c.workers = append(c.workers, m)
	for _, m := range c.all() {
		c.importImages(m)
		c.makeAdmin(m, first)
	}
	for _, m := range c.victims() {
		c.run(first, "ctl label node "+m.Name()+" cut=")
	}
	c.write(first, "/root/cuts.yaml", cutsManifest)
	c.whole(first, 3)
	// A pod with a volume does not start on a node that has not registered the driver.
	c.run(first, fmt.Sprintf(`
		until [ $(ctl get csinodes -o jsonpath='{.items[*].spec.drivers[*].name}' | wc -w) = %d ]; do sleep 0.2; done
		ctl apply -f /root/cuts.yaml
		for set in daemonset/each statefulset/queue statefulset/db deployment/web; do
			ctl rollout status $set --timeout=100s
		done`, len(c.all())))
	return c
}

func (c *cutCell) all() []*lab.Machine { return slices.Concat(c.planes, c.workers) }

// victims are the machines that are cut for a long time: a control plane and the workers.
func (c *cutCell) victims() []*lab.Machine { return c.all()[2:] }

// get reads objects as JSON. It tries again while the API server does not answer.
func (c *cutCell) get(m *lab.Machine, what string, into any) {
	c.Helper()
	out := c.run(m, "until out=$(ctl get --request-timeout=10s -o json "+what+"); do sleep 0.2; done; echo \"$out\"")
	if err := json.Unmarshal([]byte(out), into); err != nil {
		c.Fatal(err)
	}
}

// pods returns the pods in the default namespace with a label, by name.
func (c *cutCell) pods(m *lab.Machine, selector string) map[string]corev1.Pod {
	c.Helper()
	var list corev1.PodList
	c.get(m, "pods --selector="+selector, &list)
	out := map[string]corev1.Pod{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i]
	}
	return out
}

// nodes returns the nodes of the given machines.
func (c *cutCell) nodes(m *lab.Machine, of []*lab.Machine) map[string]corev1.Node {
	c.Helper()
	var list corev1.NodeList
	c.get(m, "nodes", &list)
	out := map[string]corev1.Node{}
	for i := range list.Items {
		if slices.ContainsFunc(of, func(m *lab.Machine) bool { return m.Name() == list.Items[i].Name }) {
			out[list.Items[i].Name] = list.Items[i]
		}
	}
	return out
}

// until checks something once a second until it is true. The test fails if it is not after the given time.
func (c *cutCell) until(what string, within time.Duration, check func() bool) {
	c.Helper()
	began := time.Now()
	err := wait.PollUntilContextTimeout(c.Context(), time.Second, within, true, func(context.Context) (bool, error) {
		return check(), nil
	})
	if err != nil {
		c.Fatalf("%s: not after %s", what, within)
	}
	c.Logf("%s: after %.1f s", what, time.Since(began).Seconds())
}

// wait lets the time of a cut pass.
func (c *cutCell) wait(d time.Duration) {
	c.Helper()
	if _, err := c.lab.Run(c.within(), "sleep", fmt.Sprint(max(d, 0).Seconds())); err != nil {
		c.Fatal(err)
	}
}

// beat is what a container of cutsManifest has written on its machine: when it began and ended, in seconds since
// the boot, and its longest silence.
type beat struct {
	pod, uid, started, machine string
	first, last, silence       float64
}

// beats returns what all containers have written, by the name of the pod, in the order in which they began. It
// needs no network and no API server.
func (c *cutCell) beats() map[string][]beat {
	c.Helper()
	out := map[string][]beat{}
	for _, m := range c.all() {
		lines := c.run(m, `cd /var/lib/beats; for f in *; do
			awk -v f="$f" 'NR == 1 { first = last = $1 } { if ($1 - last > gap) gap = $1 - last; last = $1 }
				END { print f, first, last, gap + 0 }' "$f"
		done`)
		for line := range strings.Lines(lines) {
			b := beat{machine: m.Name()}
			var name string
			if _, err := fmt.Sscan(line, &name, &b.first, &b.last, &b.silence); err != nil {
				c.Fatalf("%q: %v", line, err)
			}
			parts := strings.SplitN(name, ".", 3)
			b.pod, b.uid, b.started = parts[0], parts[1], parts[2]
			out[b.pod] = append(out[b.pod], b)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b beat) int { return cmp.Compare(a.first, b.first) })
	}
	return out
}

// now returns the time since the boot in seconds.
func (c *cutCell) now() (seconds float64) {
	c.Helper()
	if _, err := fmt.Sscan(c.run(c.planes[0], "cat /proc/uptime"), &seconds); err != nil {
		c.Fatal(err)
	}
	return seconds
}

// noTwins checks that no two containers with the same name of a pod have run at the same time.
func (c *cutCell) noTwins() {
	for pod, list := range c.beats() {
		var before beat // the one of those before that has ended last
		for _, b := range list {
			c.Logf("%s on %s: UID %s from %.2f to %.2f s, longest silence %.2f s", pod, b.machine, b.uid, b.first, b.last,
				b.silence)
			if b.first <= before.last {
				c.Errorf("%s ran twice: on %s until %.2f s, and on %s from %.2f s", pod, before.machine, before.last,
					b.machine, b.first)
			}
			if b.last > before.last {
				before = b
			}
		}
	}
}

// members returns the control plane whose etcd is the leader, and reports whether all members answer and have the
// same revision.
func (c *cutCell) members(m *lab.Machine) (leader *lab.Machine, equal bool) {
	c.Helper()
	var d report.Document
	out := c.run(m, "until ctl store status --top 0 -o json; do sleep 0.2; done")
	if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Databases) != 1 {
		c.Fatal(err, out)
	}
	revisions := map[int64]bool{}
	for _, member := range d.Databases[0].Members {
		if member.Error != "" {
			return nil, false
		}
		revisions[member.Revision] = true
		for _, p := range c.planes {
			if member.Leader && member.Name == p.Name() {
				leader = p
			}
		}
	}
	return leader, len(d.Databases[0].Members) == len(c.planes) && leader != nil && len(revisions) == 1
}

// holds reports whether the controller manager of a machine is the leader.
func (c *cutCell) holds(m *lab.Machine) bool {
	c.Helper()
	return strings.HasPrefix(c.run(m, `ctl get lease -n kube-system kube-controller-manager \
		-o jsonpath='{.spec.holderIdentity}'`), m.Name()+"_")
}

// state describes what a short cut must not change: the pods and their containers, and since when nodes are ready.
func (c *cutCell) state(m *lab.Machine) string {
	c.Helper()
	var out []string
	for name, pod := range c.pods(m, "") {
		line := fmt.Sprintf("%s %s", name, pod.UID)
		for i := range pod.Status.ContainerStatuses {
			line += " " + pod.Status.ContainerStatuses[i].ContainerID
		}
		out = append(out, line)
	}
	for name, node := range c.nodes(m, c.all()) {
		out = append(out, fmt.Sprintf("%s %s, %d taints", name, ready(&node), len(node.Spec.Taints)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// ready returns the state of a node, and since when it has it.
func ready(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return fmt.Sprintf("%s since %s", c.Status, c.LastTransitionTime)
		}
	}
	return "no condition"
}

// short cuts the link of a worker and of a control plane for a few seconds, in each direction.
func (c *cutCell) short() {
	writer := c.workers[1]
	for _, d := range []lab.Direction{lab.Both, lab.In, lab.Out} {
		for _, target := range []string{"worker", "leader"} {
			before, m := c.state(c.planes[0]), c.workers[0]
			if target == "leader" {
				m, _ = c.members(c.planes[0])
			}
			seen := c.writes(writer, func() {
				if err := m.Cut(d); err != nil {
					c.Fatal(err)
				}
				c.wait(shortCut)
				if err := m.Heal(); err != nil {
					c.Fatal(err)
				}
			})
			c.Logf("the link of %s (%s) was cut (%d) for %s: longest gap %.2f s", m.Name(), target, d, shortCut, seen.Gap)
			if seen.Gap > cutFailover {
				c.Errorf("no writes for %.1f s", seen.Gap)
			}
			c.whole(c.planes[0], len(c.planes))
			c.reach(c.planes[0])
			if after := c.state(c.planes[0]); after != before {
				c.Errorf("before\n%s\nafter\n%s", before, after)
			}
		}
	}
	c.noTwins()
}

// reach checks that each machine reaches all pods of the Service web, and that no request fails.
func (c *cutCell) reach(m *lab.Machine) {
	c.Helper()
	address := c.run(m, "ctl get service web -o jsonpath='{.spec.clusterIP}'")
	want := slices.Sorted(maps.Keys(c.pods(m, "app=web")))
	var all sync.WaitGroup
	for _, from := range c.all() {
		all.Go(func() { c.reachFrom(from, address, want) })
	}
	all.Wait()
}

// reachFrom sends requests to an address, and checks which pods answer.
func (c *cutCell) reachFrom(m *lab.Machine, address string, want []string) {
	c.Helper()
	out, err := m.Run(c.within(), "bash", "-c", `for i in {1..100}; do
		timeout 5 bash -c 'exec 3<>/dev/tcp/`+address+`/80; printf "GET /hostname HTTP/1.0\r\n\r\n" >&3; cat <&3' |
			tail -n 1 | tr -d '\r\n' && echo || echo failed
		done 2>&1 | sort -u`)
	if err != nil {
		c.Error(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		c.Errorf("%s reaches %v, want %v", m.Name(), got, want)
	}
}

// partition is a long cut of the links of several machines.
type partition struct {
	*cutCell
	healthy *lab.Machine // a control plane
	cut     map[*lab.Machine]lab.Direction
	began   time.Time
	before  map[string]corev1.Pod // the pods of StatefulSets
}

// long cuts the link of a control plane both ways, and those of the workers one way, until the pods on these
// machines have been evicted for some time.
func (c *cutCell) long() {
	p := &partition{cutCell: c, healthy: c.planes[0], before: c.pods(c.planes[0], "stateful=true")}
	victims := c.victims()
	p.cut = map[*lab.Machine]lab.Direction{victims[0]: lab.Both, victims[1]: lab.Out, victims[2]: lab.In}
	for name, pod := range p.before {
		if !slices.ContainsFunc(victims, func(m *lab.Machine) bool { return m.Name() == pod.Spec.NodeName }) {
			c.Errorf("%s is on %s, which is not cut", name, pod.Spec.NodeName)
		}
	}
	// The cluster needs longer for everything if the leading controller manager is cut off too.
	for c.holds(victims[0]) {
		c.run(victims[0], "systemctl restart keelson-controller-manager")
		c.run(p.healthy, `until ! ctl get lease -n kube-system kube-controller-manager -o jsonpath='{.spec.holderIdentity}' |
			grep -q "^`+victims[0].Name()+`_"; do sleep 0.5; done`)
	}
	// In a zone where at least three nodes and more than half of them are unreachable, no pods are evicted.
	for i, m := range c.all() {
		c.run(p.healthy, fmt.Sprintf("ctl label node %s topology.kubernetes.io/zone=%c", m.Name(), "aabab"[i]))
	}
	seen := c.writes(p.healthy, func() {
		p.began = time.Now()
		for m, d := range p.cut {
			c.Logf("%s is cut (%d)", m.Name(), d)
			if err := m.Cut(d); err != nil {
				c.Fatal(err)
			}
		}
		p.taints()
		p.evictions()
		c.wait(time.Until(p.began.Add(longCut)))
		p.holding()
		p.heal()
	})
	if seen.Gap > cutFailover {
		c.Errorf("no writes for %.1f s", seen.Gap)
	}
	c.noTwins()
}

// machines returns the machines that are cut.
func (p *partition) machines() []*lab.Machine { return slices.Collect(maps.Keys(p.cut)) }

// since returns how long after the cut something happened, in seconds.
func (p *partition) since(t time.Time) float64 { return t.Sub(p.began).Seconds() }

// taints waits until the nodes are unreachable and have the taint that evicts pods. Then Services do not use the
// pods on them any more.
func (p *partition) taints() {
	var nodes map[string]corev1.Node
	p.until("all nodes have the taint", 2*time.Minute, func() bool {
		nodes = p.nodes(p.healthy, p.machines())
		return !slices.ContainsFunc(slices.Collect(maps.Values(nodes)), func(n corev1.Node) bool { return evicts(&n) == nil })
	})
	for name, n := range nodes {
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		unknown, taint := p.since(n.Status.Conditions[i].LastTransitionTime.Time), p.since(*evicts(&n))
		p.Logf("%s: Ready is %s %.0f s after the cut, and the taint came %.0f s after it", name,
			n.Status.Conditions[i].Status, unknown, taint)
		// A kubelet renews its Lease every 10 s, and its node may be silent for 50 s. Times in objects have no
		// fractions of seconds.
		if n.Status.Conditions[i].Status != corev1.ConditionUnknown || unknown < 39 || unknown > 55+busy.Seconds() {
			p.Errorf("%s: want Unknown after 40 s to 55 s", name)
		}
		if taint < unknown-1 {
			p.Errorf("%s: the taint came before the node was unreachable", name)
		}
	}
	p.until("the Service has only pods on other machines", busy, func() bool {
		return len(strings.Fields(p.run(p.healthy, `ctl get endpointslices -l kubernetes.io/service-name=web \
			-o jsonpath='{.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}'`))) == 2
	})
}

// evicts returns when a node got the taint that evicts pods, or nil.
func evicts(n *corev1.Node) *time.Time {
	for _, t := range n.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
			return &t.TimeAdded.Time
		}
	}
	return nil
}

// evictions waits until the pods of StatefulSets and of the Deployment are evicted, and checks that this is as late
// as it should be.
func (p *partition) evictions() {
	taints := map[string]time.Time{}
	for name, n := range p.nodes(p.healthy, p.machines()) {
		taints[name] = *evicts(&n)
	}
	evicted := func(pod corev1.Pod) bool {
		_, cut := taints[pod.Spec.NodeName]
		return !cut || pod.DeletionTimestamp != nil || pod.Labels["app"] == "each"
	}
	var pods map[string]corev1.Pod
	p.until("all pods are evicted", defaultToleration+time.Minute, func() bool {
		pods = p.pods(p.healthy, "app")
		return !slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(pod corev1.Pod) bool { return !evicted(pod) })
	})
	for name, pod := range pods {
		if pod.DeletionTimestamp == nil {
			continue
		}
		i := slices.IndexFunc(pod.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		if i < 0 {
			p.Errorf("%s is deleted, but not by the taint", name)
			continue
		}
		at := pod.Status.Conditions[i].LastTransitionTime.Time
		after := at.Sub(taints[pod.Spec.NodeName])
		p.Logf("%s on %s was evicted %.0f s after the cut, %s after the taint", name, pod.Spec.NodeName, p.since(at), after)
		if after < defaultToleration-time.Second || after > defaultToleration+busy {
			p.Errorf("%s: want an eviction %s after the taint", name, defaultToleration)
		}
	}
	p.run(p.healthy, "ctl rollout status deployment/web --timeout=60s")
	p.Logf("the Deployment is whole again %.0f s after the cut", p.since(time.Now()))
}

// holding checks, at the end of the cut, that the pods still run on the machines that are cut, and that the
// StatefulSets have no others.
func (p *partition) holding() {
	for name, pod := range p.pods(p.healthy, "stateful=true") {
		if pod.UID != p.before[name].UID || pod.DeletionTimestamp == nil {
			p.Errorf("%s has UID %s and deletion time %v, want %s, which waits for its kubelet", name, pod.UID,
				pod.DeletionTimestamp, p.before[name].UID)
		}
	}
	for name, pod := range p.pods(p.healthy, "app=each") {
		if pod.DeletionTimestamp != nil {
			p.Errorf("%s is deleted, but tolerates the taint", name)
		}
	}
	now := p.now()
	for pod, list := range p.beats() {
		if len(list) != 1 || now-list[0].last > busy.Seconds() {
			p.Errorf("%s does not run any more on the machine that is cut: %v at %.2f", pod, list, now)
		}
	}
}

// heal ends the cut, and waits until everything is as before.
func (p *partition) heal() {
	healed, uptime := time.Now(), p.now()
	for m := range p.cut {
		if err := m.Heal(); err != nil {
			p.Fatal(err)
		}
	}
	p.run(p.healthy, "ctl wait --for=condition=Ready nodes --all --timeout=150s")
	back := time.Since(healed)
	p.Logf("all nodes are ready %.1f s after the end of the cut", back.Seconds())
	if back > time.Minute {
		p.Errorf("the nodes are ready after %s, want a minute", back)
	}
	p.whole(p.healthy, len(p.planes))
	p.run(p.healthy, `for set in daemonset/each statefulset/queue statefulset/db deployment/web; do
			ctl rollout status $set --timeout=150s
		done`)
	p.until("pods that were evicted are gone", time.Minute, func() bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(p.pods(p.healthy, "app"))),
			func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	})
	p.Logf("all pods are as wanted %.1f s after the end of the cut", time.Since(healed).Seconds())
	p.until("etcd's members have the same revision", busy, func() bool { _, equal := p.members(p.healthy); return equal })
	for m := range p.cut {
		for _, reason := range []string{"NodeNotReady", "NodeReady"} {
			// A client repeats an event after ten seconds if the API server cannot be reached.
			p.run(p.healthy, fmt.Sprintf("until ctl get events -n default -o name --field-selector "+
				"involvedObject.kind=Node,involvedObject.name=%s,reason=%s | grep -q .; do sleep 0.5; done", m.Name(), reason))
		}
	}
	p.replaced(uptime)
	p.watches()
}

// replaced checks that each pod of a StatefulSet ended after the cut on the machine that was cut, and was then
// replaced once.
func (p *partition) replaced(healed float64) {
	beats, pods := p.beats(), p.pods(p.healthy, "stateful=true")
	for name, before := range p.before {
		list, pod := beats[name], pods[name]
		if len(list) != 2 || list[0].uid != string(before.UID) || list[1].uid != string(pod.UID) || pod.UID == before.UID {
			p.Errorf("%s: containers %v, want one of %s and one of %s", name, list, before.UID, pod.UID)
			continue
		}
		if list[0].last < healed {
			p.Errorf("%s ended at %.2f s, before the end of the cut at %.2f s", name, list[0].last, healed)
		}
		if pod.Labels["app"] == "db" {
			volume := strings.Fields(p.run(p.healthy, "ctl exec "+name+" -c beat -- cat /data/pods"))
			if want := []string{string(before.UID), string(pod.UID)}; !slices.Equal(volume, want) {
				p.Errorf("%s: the volume has the pods %v, want %v", name, volume, want)
			}
		}
	}
	now := p.now()
	for pod := range p.pods(p.healthy, "app=each") {
		if list := beats[pod]; len(list) != 1 || now-list[0].last > busy.Seconds() {
			p.Errorf("%s was restarted: %v at %.2f", pod, list, now)
		}
	}
}

// watches checks that the programs on all machines notice changes: their kubelets run new pods, and their proxies
// know a new Service.
func (p *partition) watches() {
	p.run(p.healthy, `ctl patch daemonset each --patch '{"spec": {"template": {"metadata": {"labels": {"new": "1"}},
			"spec": {"terminationGracePeriodSeconds": 1}}, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 5}}}}'
		ctl rollout status daemonset/each --timeout=100s
		ctl delete service web
		ctl expose deployment web --port=80`)
	p.reach(p.healthy)
}

// TestCuts cuts the links of machines both ways and one way. No pod of a StatefulSet runs twice, no acknowledged
// write is lost, and all nodes come back by themselves.
func TestCuts(t *testing.T) {
	c := newCutCell(t)
	c.short()
	c.long()
}
