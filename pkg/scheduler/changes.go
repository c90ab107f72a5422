// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// ErrUnknown means that the pod does not exist, or that another scheduler is responsible for it.
var ErrUnknown = errors.New("not known to this scheduler")

// Limits of the search for changes to a pod that would let it fit a node.
const (
	maxRounds  = 60 // maximum number of evaluations
	maxChanges = 8  // maximum number of changes that are reported
)

// dropped marks an affinity term that an edit removes: the edit sets the term's topology key to it. The
// term is deleted only after all edits are applied, so that the other terms keep their indexes.
const dropped = "\x00"

// edit is one possible change to a pod, for example the removal of a node selector.
type edit struct {
	what  string
	apply func(*v1.Pod)
	// resource is set if the edit removes the request for a resource. The function lower computes
	// later how far the request must be lowered instead.
	resource v1.ResourceName
}

// changes finds the smallest changes that let the pod fit: one change, or two changes together if
// no single change is enough.
func (a *asker) changes(pod *v1.Pod, w *Why) []Change {
	edits := a.edits(pod, w)
	var out []Change
	for _, e := range edits {
		if c, ok := a.try(pod, e); ok {
			out = append(out, c)
		}
	}
	for i := 0; i < len(edits) && len(out) == 0; i++ {
		for j := i + 1; j < len(edits); j++ {
			if c, ok := a.try(pod, edits[i], edits[j]); ok {
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y Change) int { return -cmp.Compare(x.Nodes, y.Nodes) })
	return out[:min(len(out), maxChanges)]
}

// try reports whether the pod fits with some edits (changes to the pod), and on how many nodes.
func (a *asker) try(pod *v1.Pod, edits ...edit) (Change, bool) {
	if a.rounds >= maxRounds {
		return Change{}, false
	}
	changed := pod.DeepCopy()
	for _, e := range edits {
		e.apply(changed)
	}
	if f := changed.Spec.Affinity; f != nil && f.PodAffinity != nil {
		terms := &f.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = slices.DeleteFunc(*terms, func(t v1.PodAffinityTerm) bool { return t.TopologyKey == dropped })
	}
	nodes := a.fits(changed)
	if len(nodes) == 0 {
		return Change{}, false
	}
	c := Change{Nodes: len(nodes), Node: nodes[0].Name}
	for _, e := range edits {
		what := e.what
		if e.resource != "" {
			what, c.Node = lower(e.resource, nodes)
			c.Nodes = 1
		}
		if c.What != "" {
			c.What += ", and "
		}
		c.What += what
	}
	return c, true
}

// lower returns text that says how far a request must be lowered for the pod to fit one of the given
// nodes: the one with the largest unrequested amount of the resource. It also returns its name.
func lower(name v1.ResourceName, nodes []*scheduling.Node) (what, node string) {
	most := int64(-1)
	for _, n := range nodes {
		// A node whose pods request more than the node has allocatable is skipped.
		has, used := n.Allocatable.Get(name), n.Requested.Get(name)
		if has >= used && has-used > most {
			most, node = has-used, n.Name
		}
	}
	q := resource.NewQuantity(most, resource.BinarySI)
	if name == v1.ResourceCPU {
		q = resource.NewMilliQuantity(most, resource.DecimalSI)
	}
	if most <= 0 {
		return fmt.Sprintf("do not request %s", name), node
	}
	return fmt.Sprintf("lower the %s request to %s", name, q), node
}

// edits returns the changes that may help, for the plugins that rejected nodes in w.
func (a *asker) edits(pod *v1.Pod, w *Why) []edit {
	objects := map[string]bool{}
	for i := range w.Nodes {
		if o := w.Nodes[i].Objection; o != nil {
			objects[o.Plugin] = true
		}
		for _, o := range w.Nodes[i].Others {
			objects[o.Plugin] = true
		}
	}
	if w.Rejected != nil {
		return nil // the pod was rejected for a reason that is independent of nodes
	}
	var out []edit
	add := func(plugin string, edits []edit) {
		if objects[plugin] {
			out = append(out, edits...)
		}
	}
	add("NodeResourcesFit", requestEdits(pod))
	add("TaintToleration", a.tolerationEdits(pod))
	add("NodeUnschedulable",
		[]edit{{what: "uncordon a node",
			apply: tolerate(v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})}})
	add("NodeAffinity", affinityEdits(pod))
	add("NodePorts", portEdits(pod))
	add("PodTopologySpread", spreadEdits(pod))
	add("InterPodAffinity", neighbourEdits(pod))
	return out
}

func requestEdits(pod *v1.Pod) []edit {
	var out []edit
	requests := cell.Compile(pod).Requests
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for name := range requests.Scalar {
		names = append(names, name)
	}
	slices.Sort(names[3:])
	for _, name := range names {
		if requests.Get(name) == 0 {
			continue
		}
		out = append(out, edit{resource: name, apply: func(p *v1.Pod) {
			for _, cs := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
				for i := range cs {
					delete(cs[i].Resources.Requests, name)
				}
			}
			delete(p.Spec.Overhead, name)
			if p.Spec.Resources != nil {
				delete(p.Spec.Resources.Requests, name)
			}
		}})
	}
	return out
}

func tolerate(t v1.Taint) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations,
			v1.Toleration{Key: t.Key, Operator: v1.TolerationOpExists, Effect: t.Effect})
	}
}

// tolerationEdits returns one edit (a change to the pod that adds a toleration) for each distinct
// taint of the nodes.
func (a *asker) tolerationEdits(pod *v1.Pod) []edit {
	a.lock.Lock()
	defer a.lock.Unlock()
	var out []edit
	seen := map[string]bool{}
	for _, n := range a.view.Nodes() {
		for _, t := range n.Spec.Taints {
			what := fmt.Sprintf("tolerate taint %s:%s", t.Key, t.Effect)
			if t.Effect == v1.TaintEffectPreferNoSchedule || seen[what] || tolerates(pod, &t) {
				continue
			}
			seen[what] = true
			out = append(out, edit{what: what, apply: tolerate(t)})
		}
	}
	return out[:min(len(out), maxRounds/4)]
}

func tolerates(pod *v1.Pod, t *v1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(x v1.Toleration) bool {
		return (x.Key == t.Key || x.Key == "" && x.Operator == v1.TolerationOpExists) &&
			(x.Effect == "" || x.Effect == t.Effect) &&
			(x.Operator == v1.TolerationOpExists || x.Value == t.Value)
	})
}

func affinityEdits(pod *v1.Pod) []edit {
	var out []edit
	for key := range pod.Spec.NodeSelector {
		out = append(out, edit{what: "drop nodeSelector " + key, apply: func(p *v1.Pod) { delete(p.Spec.NodeSelector, key) }})
	}
	slices.SortFunc(out, func(x, y edit) int { return cmp.Compare(x.what, y.what) })
	if f := pod.Spec.Affinity; f != nil && f.NodeAffinity != nil &&
		f.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		out = append(out, edit{what: "drop the required node affinity", apply: func(p *v1.Pod) {
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}})
	}
	return out
}

func portEdits(pod *v1.Pod) []edit {
	var out []edit
	for i := range pod.Spec.Containers {
		for j, port := range pod.Spec.Containers[i].Ports {
			if port.HostPort != 0 {
				out = append(out, edit{what: fmt.Sprintf("drop hostPort %d", port.HostPort), apply: func(p *v1.Pod) {
					p.Spec.Containers[i].Ports[j].HostPort = 0
				}})
			}
		}
	}
	return out
}

func spreadEdits(pod *v1.Pod) []edit {
	var out []edit
	for i, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == v1.DoNotSchedule {
			out = append(out, edit{what: fmt.Sprintf("drop topology spread constraint %d (%s)", i+1,
				c.TopologyKey), apply: func(p *v1.Pod) {
				p.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable = v1.ScheduleAnyway
			}})
		}
	}
	return out
}

func neighbourEdits(pod *v1.Pod) []edit {
	var out []edit
	f := pod.Spec.Affinity
	if f == nil {
		return nil
	}
	if f.PodAffinity != nil {
		for i, t := range f.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			out = append(out, edit{what: fmt.Sprintf("drop affinity term %d (%s)", i+1, t.TopologyKey), apply: func(p *v1.Pod) {
				terms := &p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
				(*terms)[i].TopologyKey = dropped // marks the term for deletion; the other terms keep their indexes
			}})
		}
	}
	if f.PodAntiAffinity != nil {
		for i, t := range f.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			out = append(out, edit{what: fmt.Sprintf("drop anti-affinity term %d (%s)", i+1, t.TopologyKey),
				apply: func(p *v1.Pod) {
					terms := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
					(*terms)[i].LabelSelector = nil // a nil selector matches no pod; the other terms keep their indexes
				}})
		}
	}
	return out
}
