// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/intake"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

var (
	cells = flag.Int("cells", 300, "cells (random clusters) in which to compare the scheduler with the reference")
	from  = flag.Int("from", 1, "seed of the first cell (random cluster); each further cell has the next seed")
)

// stepsPerCell is the number of pods in each cell (random cluster) for which the results of the
// scheduler are compared with those of the reference. The cell changes between pods.
const stepsPerCell = 6

func TestDifferential(t *testing.T) {
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	next, failed := atomic.Int64{}, atomic.Bool{}
	next.Store(int64(*from) - 1)
	var fits, pods atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !failed.Load() {
				seed := next.Add(1)
				if seed >= int64(*from+*cells) {
					return
				}
				some, err := compare(set.Profiles[v1.DefaultSchedulerName], uint64(seed))
				if err != nil {
					failed.Store(true)
					t.Errorf("seed %d: %v", seed, err)
				}
				fits.Add(int64(some))
				pods.Add(stepsPerCell)
			}
		})
	}
	workers.Wait()
	t.Logf("seeds %d to %d: %d pods, %d of them fit somewhere", *from, *from+*cells-1, pods.Load(), fits.Load())
	if n := fits.Load(); n*10 < pods.Load() || n*10 > pods.Load()*9 {
		t.Errorf("%d of %d pods fit somewhere: too few or too many for a useful test", n, pods.Load())
	}
}

// compare draws a random cluster. For several pods it compares the results of the scheduler and of
// the reference, and changes the cluster between pods.
func compare(p *profile.Profile, seed uint64) (fits int, err error) {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 7))}
	m, err := scheduler.NewModel(p, d.Rand)
	if err != nil {
		return 0, err
	}
	c := d.cluster()
	if c.reader, err = intake.NewReader(); err != nil {
		return 0, err
	}
	for _, o := range c.objects() {
		if err := c.set(m, o); err != nil {
			return 0, err
		}
	}
	for step := range stepsPerCell {
		pod := d.pod()
		if d.chance(5) {
			pod.Spec.NodeName = pick(d, "n0", "n1")
		}
		c.claim(d, pod)
		got, err := m.Explain(c.asRead(pod))
		if err != nil {
			return fits, err
		}
		want := reference(c, pod)
		if diff := differ(want, got); diff != "" {
			enc, err := json.Marshal(pod)
			return fits, errors.Join(fmt.Errorf("step %d: %s\npod %s", step, diff, enc), err)
		}
		if pod.Spec.NodeName == "" {
			some, err := place(c, m, pod, want)
			if err != nil {
				return fits, fmt.Errorf("step %d: %w", step, err)
			}
			fits += some
		}
		if err := d.change(c, m); err != nil {
			return fits, err
		}
	}
	return fits, nil
}

// place lets the scheduler place a pod, and checks that it chooses one of the nodes that have the
// best score according to the reference.
func place(c *cluster, m *scheduler.Model, pod *v1.Pod, want map[string]*answer) (fits int, err error) {
	best := int64(-1)
	for _, a := range want {
		if a.plugin == "" {
			best = max(best, a.total)
		}
	}
	node, err := m.Place(c.asRead(pod))
	switch {
	case best < 0 && err == nil:
		return 0, fmt.Errorf("placed on %s, but fits nowhere", node)
	case best < 0:
		return 0, nil
	case err != nil:
		return 0, err
	case want[node].plugin != "" || want[node].total != best:
		return 0, fmt.Errorf("placed on %s with total %d; the best is %d", node, want[node].total, best)
	}
	on := pod.DeepCopy()
	on.Spec.NodeName = node
	c.pods = append(c.pods, on)
	return 1, c.set(m, on)
}

// asRead returns a pod in the form in which the scheduler decodes it from the API server's
// response.
func (c *cluster) asRead(pod *v1.Pod) *v1.Pod {
	raw, err := pod.Marshal()
	if err != nil {
		panic(err) // a pod can always be encoded
	}
	out, err := c.reader.Pod(raw)
	if err != nil {
		panic(err)
	}
	return out
}

// set adds or replaces an object in the model. Pods are converted by asRead.
func (c *cluster) set(m *scheduler.Model, o apiruntime.Object) error {
	if pod, ok := o.(*v1.Pod); ok {
		o = c.asRead(pod)
	}
	return m.Set(o)
}

// differ compares the results for each node, and describes the first difference. It returns "" if
// there is none.
func differ(want map[string]*answer, got *scheduler.Explanation) string {
	if got.Rejected != nil {
		for name, a := range want {
			if a.plugin == "" {
				return fmt.Sprintf("rejected by %s on all nodes, but fits %s", got.Rejected.Plugin, name)
			}
		}
		return ""
	}
	if len(got.Nodes) != len(want) {
		return fmt.Sprintf("%d nodes, want %d", len(got.Nodes), len(want))
	}
	for _, n := range got.Nodes {
		w, plugin := want[n.Node], ""
		if n.Objection != nil {
			plugin = n.Objection.Plugin
		}
		if plugin != w.plugin {
			return fmt.Sprintf("node %s: objection of %q, want %q", n.Node, plugin, w.plugin)
		}
		if plugin != "" {
			continue
		}
		if diff := differScores(w, n); diff != "" {
			return fmt.Sprintf("node %s: %s", n.Node, diff)
		}
	}
	return ""
}

func differScores(want *answer, got scheduler.NodeExplanation) string {
	total := int64(0)
	said := map[string]int64{}
	for _, s := range got.Scores {
		said[s.Plugin] = s.Score
		total += s.Score * s.Weight
		if s.Weight != weights[s.Plugin] {
			return fmt.Sprintf("weight of %s is %d, want %d", s.Plugin, s.Weight, weights[s.Plugin])
		}
	}
	for plugin := range weights { // a plugin that gives no scores has score 0
		if said[plugin] != want.scores[plugin] {
			return fmt.Sprintf("%s gives %d, want %d", plugin, said[plugin], want.scores[plugin])
		}
	}
	if total != got.Total || total != want.total {
		return fmt.Sprintf("total %d, of scores %d, want %d", got.Total, total, want.total)
	}
	return ""
}

func (d *draw) cluster() *cluster {
	c := &cluster{namespaces: map[string]map[string]string{}}
	for i := range 1 + d.IntN(10) {
		c.nodes = append(c.nodes, d.node(i))
	}
	for _, ns := range []string{"one", "two", "three"} {
		c.namespaces[ns] = map[string]string{"team": pick(d, "red", "blue")}
		if d.chance(50) {
			c.services = append(c.services, &v1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"},
				Spec:       v1.ServiceSpec{Selector: map[string]string{"app": pick(d, "a", "b")}},
			})
		}
	}
	d.storage(c)
	for range d.IntN(25) {
		p := d.pod()
		c.claim(d, p)
		p.Spec.NodeName = c.nodes[d.IntN(len(c.nodes))].Name
		if d.chance(5) {
			p.DeletionTimestamp = &metav1.Time{}
		}
		c.pods = append(c.pods, p)
	}
	return c
}

func (c *cluster) objects() []apiruntime.Object {
	var out []apiruntime.Object
	for name, labels := range c.namespaces {
		out = append(out, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for _, s := range c.services {
		out = append(out, s)
	}
	for _, o := range c.claims {
		out = append(out, o)
	}
	for _, o := range c.volumes {
		out = append(out, o)
	}
	for _, o := range c.classes {
		out = append(out, o)
	}
	for _, o := range c.csiNodes {
		out = append(out, o)
	}
	for _, n := range c.nodes {
		out = append(out, n)
	}
	for _, p := range c.pods {
		out = append(out, p)
	}
	return out
}

// change makes a random change to the cluster, in both the reference and the model.
func (d *draw) change(c *cluster, m *scheduler.Model) error {
	switch d.IntN(7) {
	case 0, 1: // remove a pod
		if len(c.pods) > 0 {
			i := d.IntN(len(c.pods))
			m.RemovePod(c.pods[i].UID)
			c.pods = slices.Delete(c.pods, i, i+1)
		}
	case 2: // replace a node
		i := d.IntN(len(c.nodes))
		n := d.node(i)
		n.Name = c.nodes[i].Name
		c.nodes[i] = n
		return m.Set(n)
	case 3: // remove a node with its pods
		if len(c.nodes) > 1 {
			i := d.IntN(len(c.nodes))
			name := c.nodes[i].Name
			c.nodes = slices.Delete(c.nodes, i, i+1)
			c.pods = slices.DeleteFunc(c.pods, func(p *v1.Pod) bool {
				if p.Spec.NodeName == name {
					m.RemovePod(p.UID)
				}
				return p.Spec.NodeName == name
			})
			m.RemoveNode(name)
		}
	case 4: // change the labels of a pod
		if len(c.pods) > 0 {
			i := d.IntN(len(c.pods))
			p := c.pods[i].DeepCopy()
			p.Labels = d.labels()
			c.pods[i] = p
			return c.set(m, p)
		}
	case 5: // change the labels of a namespace
		ns := pick(d, "one", "two", "three")
		c.namespaces[ns] = map[string]string{"team": pick(d, "red", "blue")}
		return m.Set(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: c.namespaces[ns]}})
	}
	return nil
}
