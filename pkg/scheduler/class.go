// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// maxVerdicts bounds the verdicts kept over all classes.
const maxVerdicts = 1 << 20

// class is what plugins with NodeScope said of nodes for pods that are alike.
type class struct {
	filters  []scheduling.Filter
	reject   *scheduling.Status // of a plugin that rejected the class on all nodes
	scorers  []weightedScorer
	verdicts []verdict // by node index
	raw      []int64   // raw scores, len(scorers) for each node
	nodes    int       // number of nodes when the scorers were compiled
	used     uint64    // when it was used last, for eviction
}

type weightedScorer struct {
	scheduling.Scorer
	weight int64
}

// verdict holds while the node at its index is in generation; generations are
// unique over all nodes, so a node that moved to another index is not mistaken.
type verdict struct {
	generation uint64
	scored     uint64 // generation the raw scores are of
	status     *scheduling.Status
}

// classes are the classes seen lately.
type classes struct {
	byKey map[string]*class
	turn  uint64
}

// classKey is equal for pods that no NodeScope plugin can tell apart.
func classKey(p *profile.Profile, pod *scheduling.Pod) (string, error) {
	images := make([]string, 0, len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	for _, cs := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range cs {
			images = append(images, cs[i].Image)
		}
	}
	var affinity *v1.NodeAffinity
	if a := pod.Spec.Affinity; a != nil {
		affinity = a.NodeAffinity
	}
	b, err := json.Marshal([]any{
		p.Name, pod.Spec.NodeName, pod.Spec.NodeSelector, affinity, pod.Spec.Tolerations,
		pod.Requests, pod.NonZero, pod.HostPorts, images,
	})
	if err != nil {
		return "", fmt.Errorf("class of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return string(b), nil
}

// get returns the class of a pod, compiled for the view's present nodes.
func (c *classes) get(view scheduling.View, p *profile.Profile, pod *scheduling.Pod) (*class, error) {
	key, err := classKey(p, pod)
	if err != nil {
		return nil, err
	}
	nodes := len(view.Nodes())
	k := c.byKey[key]
	if k == nil || k.nodes != nodes {
		k = compile(view, p, pod)
		c.byKey[key] = k
		c.evict(nodes)
	}
	c.turn++
	k.used = c.turn
	return k, nil
}

func compile(view scheduling.View, p *profile.Profile, pod *scheduling.Pod) *class {
	nodes := len(view.Nodes())
	k := &class{nodes: nodes, verdicts: make([]verdict, nodes)}
	for _, plugin := range p.NodeFilters {
		f, st := plugin.Compile(view, pod)
		if st != nil {
			k.reject = st
			return k
		}
		if f != nil {
			k.filters = append(k.filters, f)
		}
	}
	for _, plugin := range p.NodeScores {
		if s := plugin.CompileScore(view, pod, nil); s != nil {
			k.scorers = append(k.scorers, weightedScorer{s, plugin.Weight})
		}
	}
	k.raw = make([]int64, nodes*len(k.scorers))
	return k
}

// evict drops the classes not used for longest until the bound holds.
func (c *classes) evict(nodes int) {
	limit := max(maxVerdicts/max(nodes, 1), 8)
	for len(c.byKey) > limit {
		oldest, at := "", ^uint64(0)
		for key, k := range c.byKey {
			if k.used < at && k.used > 0 {
				oldest, at = key, k.used
			}
		}
		delete(c.byKey, oldest)
	}
}

// filter returns what the NodeScope plugins say of a node.
func (k *class) filter(n *scheduling.Node) *scheduling.Status {
	v := &k.verdicts[n.Index]
	if v.generation != n.Generation {
		v.generation, v.status = n.Generation, first(k.filters, n)
	}
	return v.status
}

// first returns the first objection of filters against a node.
func first(filters []scheduling.Filter, n *scheduling.Node) *scheduling.Status {
	for _, f := range filters {
		if st := f.Filter(n); st != nil {
			return st
		}
	}
	return nil
}

// scores returns the raw scores of a node, one for each scorer of the class.
func (k *class) scores(n *scheduling.Node) []int64 {
	v := &k.verdicts[n.Index]
	raw := k.raw[n.Index*len(k.scorers):][:len(k.scorers)]
	if v.scored != n.Generation {
		v.scored = n.Generation
		for i := range k.scorers {
			raw[i] = k.scorers[i].Score(n)
		}
	}
	return raw
}
