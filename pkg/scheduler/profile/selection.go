// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"
)

// enabled has the names and weights of the plugins that are enabled at one extension point, in
// order.
type enabled struct {
	names   []string
	weights map[string]int64
}

func (e *enabled) has(name string) bool { return slices.Contains(e.names, name) }

// weight returns the weight of a plugin, or 1 if the configuration sets none.
func (e *enabled) weight(name string) int64 {
	if w := e.weights[name]; w > 0 {
		return w
	}
	return 1
}

// apply removes the plugins that a PluginSet disables, and then adds those that it enables, as
// Kubernetes does. A plugin that is already enabled keeps its position and gets the new weight.
func (e *enabled) apply(set configv1.PluginSet) {
	for _, d := range set.Disabled {
		if d.Name == "*" {
			e.names = nil
			continue
		}
		e.names = slices.DeleteFunc(e.names, func(n string) bool { return n == d.Name })
	}
	for _, p := range set.Enabled {
		if !e.has(p.Name) {
			e.names = append(e.names, p.Name)
		}
		if p.Weight != nil {
			e.weights[p.Name] = int64(*p.Weight)
		}
	}
}

func (e *enabled) clone() enabled {
	weights := make(map[string]int64, len(e.weights))
	for k, v := range e.weights {
		weights[k] = v
	}
	return enabled{slices.Clone(e.names), weights}
}

// selection has the plugins that a profile enables at each extension point.
type selection struct {
	filter, score, gate, sort, postFilter enabled
}

// choose applies the plugin lists of a profile to the default plugins. The list multiPoint applies
// to all extension points. Each other list applies to one extension point.
func choose(c *configv1.Plugins) *selection {
	if c == nil {
		c = &configv1.Plugins{}
	}
	multi := everywhere(c)
	at := func(set configv1.PluginSet) enabled {
		e := multi.clone()
		e.apply(set)
		return e
	}
	return &selection{at(c.Filter), at(c.Score), at(c.PreEnqueue), at(c.QueueSort), at(c.PostFilter)}
}

// everywhere returns the plugins that the list multiPoint enables at all extension points.
func everywhere(c *configv1.Plugins) enabled {
	multi := enabled{weights: map[string]int64{}}
	for _, b := range builtins {
		multi.names = append(multi.names, b.name)
		multi.weights[b.name] = b.weight
	}
	multi.apply(c.MultiPoint)
	return multi
}

// all returns the names of the plugins that are enabled at any extension point, filters first.
func (s *selection) all() []string {
	var names []string
	for _, e := range []*enabled{&s.filter, &s.score, &s.gate, &s.sort, &s.postFilter} {
		for _, name := range e.names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
