// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// maxKept bounds the nodes' worth of Lasting filters and scorers that are kept.
const maxKept = 1 << 19

// kept is what plugins with CellScope compiled for pods that are alike, as far
// as it is Lasting. It follows the pods that come and go.
type kept struct {
	filters map[string]scheduling.Filter
	scorers map[string]scheduling.Scorer
	stamp   stamp
	at      cell.Mark
	used    uint64
}

// stamp changes with what makes kept things void, beside nodes.
type stamp struct{ namespaces, selectors uint64 }

// keeper keeps what was compiled lately.
type keeper struct {
	byKey map[string]*kept
	turn  uint64
}

// keptKey is equal for pods for which Lasting filters and scorers are the same.
func keptKey(p *profile.Profile, pod *scheduling.Pod) (string, error) {
	var nodes any
	if a := pod.Spec.Affinity; a != nil {
		nodes = a.NodeAffinity
	}
	owner := ""
	if o := metav1.GetControllerOf(pod); o != nil {
		owner = o.APIVersion + " " + o.Kind + " " + o.Name
	}
	b, err := json.Marshal([]any{p.Name, pod.Spec.TopologySpreadConstraints, pod.Spec.NodeSelector, nodes, pod.Spec.Tolerations, owner})
	if err != nil {
		return "", fmt.Errorf("kind of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return pod.GroupKey + "\x00" + string(b), nil
}

// get returns what is kept for a pod, up to date with the view.
func (k *keeper) get(v *view, pod *scheduling.Pod, key string) *kept {
	stamp := v.stamp(pod.Namespace)
	c := k.byKey[key]
	now := v.Now()
	if c != nil {
		changes, ok := v.Since(c.at)
		if ok && c.stamp == stamp && c.at.Shape == now.Shape {
			c.follow(changes)
		} else {
			c = nil
		}
	}
	if c == nil {
		c = &kept{filters: map[string]scheduling.Filter{}, scorers: map[string]scheduling.Scorer{}, stamp: stamp}
		k.byKey[key] = c
		k.evict(len(v.Nodes()))
	}
	c.at = now
	k.turn++
	c.used = k.turn
	return c
}

func (k *keeper) evict(nodes int) {
	limit := max(maxKept/max(nodes, 1), 16)
	if len(k.byKey) <= limit {
		return
	}
	// Half at a time, so that the cost of looking is shared by many.
	for key, c := range k.byKey {
		if c.used > 0 && c.used+uint64(limit)/2 < k.turn {
			delete(k.byKey, key)
		}
	}
}

func (c *kept) follow(changes []cell.Change) {
	for _, ch := range changes {
		if ch.Pod == nil {
			continue
		}
		for _, f := range c.filters {
			f.(scheduling.Lasting).Adjust(ch.Node, ch.Pod, ch.N)
		}
		for _, s := range c.scorers {
			s.(scheduling.Lasting).Adjust(ch.Node, ch.Pod, ch.N)
		}
	}
}

// filter returns what a plugin compiles for the pod, or has compiled; idle ones
// are left out.
func (c *kept) filter(v *view, plugin scheduling.FilterPlugin, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	f := c.filters[plugin.Name()]
	if f == nil {
		var st *scheduling.Status
		if f, st = plugin.Compile(v, pod); f == nil || st != nil {
			return nil, st
		}
		if _, ok := f.(scheduling.Lasting); !ok {
			return f, nil
		}
		c.filters[plugin.Name()] = f
	}
	if f.(scheduling.Lasting).Idle() {
		return nil, nil
	}
	return f, nil
}

func (c *kept) scorer(v *view, plugin scheduling.ScorePlugin, pod *scheduling.Pod) scheduling.Scorer {
	s := c.scorers[plugin.Name()]
	if s == nil {
		if s = plugin.CompileScore(v, pod); s == nil {
			return nil
		}
		if _, ok := s.(scheduling.Lasting); !ok {
			return s
		}
		c.scorers[plugin.Name()] = s
	}
	if s.(scheduling.Lasting).Idle() {
		return nil
	}
	return s
}
