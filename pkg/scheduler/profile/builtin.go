// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/plugins/imagelocality"
	"keelson.dev/keelson/pkg/scheduler/plugins/interpodaffinity"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodeaffinity"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodedeclaredfeatures"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodename"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodeports"
	"keelson.dev/keelson/pkg/scheduler/plugins/noderesources"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodeunschedulable"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodevolumelimits"
	"keelson.dev/keelson/pkg/scheduler/plugins/ownerturns"
	"keelson.dev/keelson/pkg/scheduler/plugins/podtopologyspread"
	"keelson.dev/keelson/pkg/scheduler/plugins/prioritysort"
	"keelson.dev/keelson/pkg/scheduler/plugins/schedulinggates"
	"keelson.dev/keelson/pkg/scheduler/plugins/tainttoleration"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumerestrictions"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumezone"
	"keelson.dev/scheduling"
)

// Factory makes a plugin from its arguments, JSON that may be empty.
type Factory func(args []byte) (scheduling.Plugin, error)

// Registry has the factories of plugins by name.
type Registry map[string]Factory

// PreemptionName is the name of preemption in configuration.
const PreemptionName = "DefaultPreemption"

// Name implements scheduling.Plugin.
func (*Preemption) Name() string { return PreemptionName }

// optional are built in and not enabled unless they are named.
var optional = Registry{
	ownerturns.Name: plain(ownerturns.Plugin{}),
}

// DefaultBinderName is the name of what binds pods. It can be named in a
// configuration; there is no other binder to take its place, but an extender.
const DefaultBinderName = "DefaultBinder"

type defaultBinder struct{}

// Name implements scheduling.Plugin.
func (defaultBinder) Name() string { return DefaultBinderName }

type builtin struct {
	name    string
	weight  int64
	factory Factory
}

// builtins are the default plugins in upstream's order and with its weights.
var builtins = []builtin{
	{schedulinggates.Name, 0, plain(schedulinggates.Plugin{})},
	{prioritysort.Name, 0, plain(prioritysort.Plugin{})},
	{nodeunschedulable.Name, 0, plain(nodeunschedulable.Plugin{})},
	{nodename.Name, 0, plain(nodename.Plugin{})},
	{tainttoleration.Name, 3, plain(tainttoleration.Plugin{})},
	{nodeaffinity.Name, 2, newNodeAffinity},
	{nodeports.Name, 0, plain(nodeports.Plugin{})},
	{noderesources.FitName, 1, newFit},
	{volumerestrictions.Name, 0, plain(volumerestrictions.Plugin{})},
	{nodevolumelimits.Name, 0, plain(nodevolumelimits.Plugin{})},
	{volumebinding.Name, 0, newVolumeBinding},
	{volumezone.Name, 0, plain(volumezone.Plugin{})},
	{podtopologyspread.Name, 2, newSpread},
	{interpodaffinity.Name, 2, newInterPodAffinity},
	{dynamicresources.Name, 2, newDynamicResources},
	{PreemptionName, 0, newPreemption},
	{noderesources.BalancedName, 1, newBalanced},
	{imagelocality.Name, 1, plain(imagelocality.Plugin{})},
	{DefaultBinderName, 0, plain(defaultBinder{})},
	{nodedeclaredfeatures.Name, 0, plain(nodedeclaredfeatures.New())},
}

func plain(p scheduling.Plugin) Factory {
	return func(args []byte) (scheduling.Plugin, error) {
		if len(args) > 0 {
			return nil, fmt.Errorf("takes no arguments")
		}
		return p, nil
	}
}

func newFit(args []byte) (scheduling.Plugin, error) {
	a, err := fitArgs(args)
	if err != nil {
		return nil, err
	}
	f := &noderesources.Fit{
		Strategy: noderesources.Strategy(a.ScoringStrategy.Type), Resources: resources(a.ScoringStrategy.Resources),
		Ignored: set(a.IgnoredResources), IgnoredGroups: set(a.IgnoredResourceGroups),
	}
	switch f.Strategy {
	case noderesources.LeastAllocated, noderesources.MostAllocated:
	case noderesources.RequestedToCapacityRatio:
		if a.ScoringStrategy.RequestedToCapacityRatio == nil || len(a.ScoringStrategy.RequestedToCapacityRatio.Shape) == 0 {
			return nil, fmt.Errorf("scoringStrategy.requestedToCapacityRatio.shape is required")
		}
		for _, p := range a.ScoringStrategy.RequestedToCapacityRatio.Shape {
			f.Shape = append(f.Shape, noderesources.Point{Utilization: int64(p.Utilization), Score: int64(p.Score)})
		}
		if !sort.SliceIsSorted(f.Shape, func(i, j int) bool { return f.Shape[i].Utilization < f.Shape[j].Utilization }) {
			return nil, fmt.Errorf("scoringStrategy.requestedToCapacityRatio.shape: utilization values must be sorted in increasing order")
		}
	default:
		return nil, fmt.Errorf("scoringStrategy.type %q is not one of LeastAllocated, MostAllocated, RequestedToCapacityRatio", f.Strategy)
	}
	return f, nil
}

func newBalanced(args []byte) (scheduling.Plugin, error) {
	a, err := balancedArgs(args)
	if err != nil {
		return nil, err
	}
	return &noderesources.Balanced{Resources: resources(a.Resources)}, nil
}

func resources(specs []configv1.ResourceSpec) []noderesources.Resource {
	var out []noderesources.Resource
	for _, s := range specs {
		out = append(out, noderesources.Resource{Name: v1.ResourceName(s.Name), Weight: s.Weight})
	}
	return out
}

func newNodeAffinity(args []byte) (scheduling.Plugin, error) {
	a, err := affinityArgs(args)
	if err != nil {
		return nil, err
	}
	return nodeaffinity.New(a.AddedAffinity)
}

// newVolumeBinding takes the arguments of the plugin; what of them concerns the
// binding itself is read by the Set.
func newVolumeBinding(args []byte) (scheduling.Plugin, error) {
	if len(args) == 0 {
		return volumebinding.Plugin{}, nil // another profile may say how long
	}
	a, err := bindingArgs(args)
	if err != nil {
		return nil, err
	}
	if *a.BindTimeoutSeconds < 0 {
		return nil, fmt.Errorf("bindTimeoutSeconds must not be negative")
	}
	return volumebinding.Plugin{BindTimeout: time.Duration(*a.BindTimeoutSeconds) * time.Second}, nil
}

func newDynamicResources(args []byte) (scheduling.Plugin, error) {
	a, err := deviceArgs(args)
	if err != nil {
		return nil, err
	}
	if a.FilterTimeout.Duration < 0 || a.BindingTimeout.Duration < time.Second {
		return nil, fmt.Errorf("filterTimeout must not be negative, bindingTimeout at least one second")
	}
	if a.FilterTimeout.Duration == 0 {
		a.FilterTimeout.Duration = configv1.DynamicResourcesFilterTimeoutDefault // a search without end would hold up all pods
	}
	return dynamicresources.New(a.FilterTimeout.Duration, a.BindingTimeout.Duration), nil
}

func newSpread(args []byte) (scheduling.Plugin, error) {
	a, err := spreadArgs(args)
	if err != nil {
		return nil, err
	}
	if a.DefaultingType == configv1.ListDefaulting {
		return &podtopologyspread.Plugin{Defaults: a.DefaultConstraints}, nil
	}
	if len(a.DefaultConstraints) > 0 {
		return nil, fmt.Errorf("defaultConstraints need defaultingType List")
	}
	return &podtopologyspread.Plugin{Defaults: podtopologyspread.SystemDefaults(), SystemDefaulted: true}, nil
}

func newInterPodAffinity(args []byte) (scheduling.Plugin, error) {
	a, err := podAffinityArgs(args)
	if err != nil {
		return nil, err
	}
	return &interpodaffinity.Plugin{
		HardWeight: int64(*a.HardPodAffinityWeight), IgnoreExistingPreferred: a.IgnorePreferredTermsOfExistingPods,
	}, nil
}

func newPreemption(args []byte) (scheduling.Plugin, error) {
	a, err := preemptionArgs(args)
	if err != nil {
		return nil, err
	}
	return &Preemption{MinPercent: int(*a.MinCandidateNodesPercentage), MinAbsolute: int(*a.MinCandidateNodesAbsolute)}, nil
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// maker makes a profile's plugins with their arguments.
type maker struct {
	factories Registry
	args      map[string]json.RawMessage
}

func newMaker(c *configv1.KubeSchedulerProfile, extra Registry) (*maker, error) {
	m := &maker{factories: Registry{}, args: map[string]json.RawMessage{}}
	for _, b := range builtins {
		m.factories[b.name] = b.factory
	}
	for name, f := range optional {
		m.factories[name] = f
	}
	for name, f := range extra {
		if m.factories[name] != nil {
			return nil, fmt.Errorf("plugin %s: is built in", name)
		}
		m.factories[name] = f
	}
	for _, p := range c.PluginConfig {
		if _, twice := m.args[p.Name]; twice {
			return nil, fmt.Errorf("pluginConfig of %s: given twice", p.Name)
		}
		m.args[p.Name] = p.Args.Raw
	}
	return m, nil
}

func (m *maker) plugin(name string) (scheduling.Plugin, error) {
	f := m.factories[name]
	if f == nil {
		return nil, fmt.Errorf("plugin %s: is not known", name)
	}
	p, err := f(m.args[name])
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", name, err)
	}
	delete(m.args, name)
	return p, nil
}

// unused names arguments that no plugin took.
func (m *maker) unused() error {
	if len(m.args) == 0 {
		return nil
	}
	names := make([]string, 0, len(m.args))
	for name := range m.args {
		names = append(names, name)
	}
	sort.Strings(names)
	return fmt.Errorf("pluginConfig of plugins that are not enabled: %s", strings.Join(names, ", "))
}
