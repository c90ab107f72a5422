// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler/extender"
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
	"keelson.dev/keelson/pkg/scheduler/plugins/utilization"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumerestrictions"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumezone"
	"keelson.dev/scheduling"
)

// Factory creates a plugin from its arguments. args is JSON, and may be empty.
type Factory func(args []byte) (scheduling.Plugin, error)

// Registry maps names of plugins to their factories.
type Registry map[string]Factory

// PreemptionName is the name of the plugin for preemption in configuration files.
const PreemptionName = "DefaultPreemption"

// optional has the built-in plugins that are not enabled by default.
var optional = map[string]factory{
	ownerturns.Name: plain(ownerturns.New()),
}

// DefaultBinderName is the configuration name of the built-in function that binds pods. An extender
// can replace it; a plugin cannot.
const DefaultBinderName = "DefaultBinder"

// plugin is a plugin with additional functions that only built-in plugins can have.
// docs/decisions/0030-plugin-api.md explains why the public API does not include them.
type plugin struct {
	scheduling.Plugin
	// compile is set for a filter that also plans which volumes or devices the pod gets on its
	// node. It is used instead of Filter.Compile.
	compile func(view scheduling.View, pod *scheduling.Pod) (Compiled, *scheduling.Status)
	// preemption is set only for the plugin DefaultPreemption.
	preemption *Preemption
	// bindTimeout is set only for the plugin VolumeBinding. If it is not 0, it replaces the default
	// timeout.
	bindTimeout time.Duration
	// deviceTimeout is set only for the plugin DynamicResources.
	deviceTimeout time.Duration
}

// factory creates a built-in plugin. extenders are the scheduler's extenders, which some plugins
// take into account.
type factory func(args []byte, extenders []*extender.Extender) (plugin, error)

type builtin struct {
	name    string
	weight  int64
	factory factory
}

// builtins has the default plugins in Kubernetes' order, with Kubernetes' weights.
var builtins = []builtin{
	{schedulinggates.Name, 0, plain(schedulinggates.New())},
	{prioritysort.Name, 0, plain(prioritysort.New())},
	{nodename.Name, 0, plain(nodename.New())},
	{nodeunschedulable.Name, 0, plain(nodeunschedulable.New())},
	{tainttoleration.Name, 3, plain(tainttoleration.New())},
	{nodeaffinity.Name, 2, public(newNodeAffinity)},
	{nodeports.Name, 0, plain(nodeports.New())},
	{noderesources.FitName, 1, newFit},
	{volumerestrictions.Name, 0, plain(volumerestrictions.New())},
	{nodevolumelimits.Name, 0, plain(nodevolumelimits.New())},
	{volumebinding.Name, 1, newVolumeBinding},
	{volumezone.Name, 0, plain(volumezone.New())},
	{podtopologyspread.Name, 2, public(newSpread)},
	{interpodaffinity.Name, 2, public(newInterPodAffinity)},
	{dynamicresources.Name, 2, newDynamicResources},
	{PreemptionName, 0, newPreemption},
	{noderesources.BalancedName, 1, public(newBalanced)},
	{imagelocality.Name, 1, plain(imagelocality.New())},
	{DefaultBinderName, 0, plain(scheduling.Plugin{Name: DefaultBinderName})},
	{nodedeclaredfeatures.Name, 0, plain(nodedeclaredfeatures.New())},
}

// public converts the factory of a plugin that uses only the public API to a factory of built-in
// plugins.
func public(f Factory) factory {
	return func(args []byte, _ []*extender.Extender) (plugin, error) {
		p, err := f(args)
		return plugin{Plugin: p}, err
	}
}

// plain returns the factory of a plugin that has no arguments.
func plain(p scheduling.Plugin) factory {
	return public(func(args []byte) (scheduling.Plugin, error) {
		if len(args) > 0 {
			return scheduling.Plugin{}, fmt.Errorf("takes no arguments")
		}
		return p, nil
	})
}

// newFit creates NodeResourcesFit, which ignores the resources that extenders manage.
func newFit(args []byte, extenders []*extender.Extender) (plugin, error) {
	a, err := fitArgs(args)
	if err != nil {
		return plugin{}, err
	}
	f := &noderesources.Fit{
		Strategy: noderesources.Strategy(a.ScoringStrategy.Type), Resources: resources(a.ScoringStrategy.Resources),
		Ignored: set(a.IgnoredResources), IgnoredGroups: set(a.IgnoredResourceGroups),
	}
	for _, e := range extenders {
		for _, r := range e.IgnoredResources() {
			f.Ignored[r] = true
		}
	}
	if err := setShape(f, a.ScoringStrategy); err != nil {
		return plugin{}, err
	}
	return plugin{Plugin: f.Plugin()}, nil
}

// setShape sets the function of utilization in f if the strategy is RequestedToCapacityRatio. It
// returns an error for an unknown strategy.
func setShape(f *noderesources.Fit, s *configv1.ScoringStrategy) error {
	switch f.Strategy {
	case noderesources.LeastAllocated, noderesources.MostAllocated:
	case noderesources.RequestedToCapacityRatio:
		var points []configv1.UtilizationShapePoint
		if s.RequestedToCapacityRatio != nil {
			points = s.RequestedToCapacityRatio.Shape
		}
		var errs field.ErrorList
		f.Shape, errs = utilization.NewShape(points, field.NewPath("scoringStrategy", "requestedToCapacityRatio", "shape"))
		return errs.ToAggregate()
	default:
		return fmt.Errorf("scoringStrategy.type %q is not one of LeastAllocated, MostAllocated, "+
			"RequestedToCapacityRatio", f.Strategy)
	}
	return nil
}

func newBalanced(args []byte) (scheduling.Plugin, error) {
	a, err := balancedArgs(args)
	if err != nil {
		return scheduling.Plugin{}, err
	}
	b := &noderesources.Balanced{Resources: resources(a.Resources)}
	return b.Plugin(), nil
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
		return scheduling.Plugin{}, err
	}
	return nodeaffinity.New(a.AddedAffinity)
}

// newVolumeBinding leaves the timeout unset if the profile has no arguments for the plugin, because
// all profiles share one timeout and another profile may set it.
func newVolumeBinding(args []byte, _ []*extender.Extender) (plugin, error) {
	a, err := bindingArgs(args)
	if err != nil {
		return plugin{}, err
	}
	shape, errs := utilization.NewShape(a.Shape, field.NewPath("shape"))
	if err := errs.ToAggregate(); err != nil {
		return plugin{}, err
	}
	p := plugin{
		Plugin: scheduling.Plugin{
			Name:   volumebinding.Name,
			Filter: &scheduling.FilterPoint{Scope: scheduling.CellScope, Events: volumebinding.Events},
			Score:  &scheduling.ScorePoint{Scope: scheduling.CellScope, Compile: volumebinding.CompileScore(shape)},
		},
		compile: func(view scheduling.View, pod *scheduling.Pod) (Compiled, *scheduling.Status) {
			f, st := volumebinding.Compile(view, pod)
			if f == nil {
				return Compiled{}, st
			}
			return Compiled{Filter: scheduling.Filter{Check: f.Check}, Volumes: f}, nil
		},
	}
	if len(args) == 0 {
		return p, nil
	}
	if *a.BindTimeoutSeconds < 0 {
		return plugin{}, fmt.Errorf("bindTimeoutSeconds must not be negative")
	}
	p.bindTimeout = time.Duration(*a.BindTimeoutSeconds) * time.Second
	return p, nil
}

func newDynamicResources(args []byte, _ []*extender.Extender) (plugin, error) {
	a, err := deviceArgs(args)
	if err != nil {
		return plugin{}, err
	}
	if a.FilterTimeout.Duration < 0 || a.BindingTimeout.Duration < time.Second {
		return plugin{}, fmt.Errorf("filterTimeout must not be negative, bindingTimeout at least one second")
	}
	if a.FilterTimeout.Duration == 0 {
		// In Kubernetes, 0 means no timeout. Keelson uses the default, because an endless search would
		// delay all other pods.
		a.FilterTimeout.Duration = configv1.DynamicResourcesFilterTimeoutDefault
	}
	devices := dynamicresources.New(a.FilterTimeout.Duration)
	return plugin{
		Plugin: scheduling.Plugin{
			Name:   dynamicresources.Name,
			Filter: &scheduling.FilterPoint{Scope: scheduling.CellScope, Events: dynamicresources.Events},
			Score:  &scheduling.ScorePoint{Scope: scheduling.CellScope, Compile: devices.CompileScore},
		},
		compile: func(view scheduling.View, pod *scheduling.Pod) (Compiled, *scheduling.Status) {
			f, st := devices.Compile(view, pod)
			if f == nil {
				return Compiled{}, st
			}
			return Compiled{Filter: scheduling.Filter{Check: f.Check}, Devices: f}, nil
		},
		deviceTimeout: a.BindingTimeout.Duration,
	}, nil
}

func newSpread(args []byte) (scheduling.Plugin, error) {
	a, err := spreadArgs(args)
	if err != nil {
		return scheduling.Plugin{}, err
	}
	if a.DefaultingType == configv1.ListDefaulting {
		return podtopologyspread.New(podtopologyspread.Config{Defaults: a.DefaultConstraints}), nil
	}
	if len(a.DefaultConstraints) > 0 {
		return scheduling.Plugin{}, fmt.Errorf("defaultConstraints need defaultingType List")
	}
	return podtopologyspread.New(podtopologyspread.Config{
		Defaults: podtopologyspread.SystemDefaults(), SystemDefaulted: true,
	}), nil
}

func newInterPodAffinity(args []byte) (scheduling.Plugin, error) {
	a, err := podAffinityArgs(args)
	if err != nil {
		return scheduling.Plugin{}, err
	}
	if w := *a.HardPodAffinityWeight; w < 0 || w > 100 {
		return scheduling.Plugin{}, fmt.Errorf("hardPodAffinityWeight: %d is not in the range 0 to 100", w)
	}
	return interpodaffinity.New(interpodaffinity.Config{
		HardWeight: int64(*a.HardPodAffinityWeight), IgnoreExistingPreferred: a.IgnorePreferredTermsOfExistingPods,
	}), nil
}

func newPreemption(args []byte, _ []*extender.Extender) (plugin, error) {
	a, err := preemptionArgs(args)
	if err != nil {
		return plugin{}, err
	}
	switch percent, absolute := *a.MinCandidateNodesPercentage, *a.MinCandidateNodesAbsolute; {
	case percent < 0 || percent > 100:
		return plugin{}, fmt.Errorf("minCandidateNodesPercentage: %d is not in the range 0 to 100", percent)
	case absolute < 0:
		return plugin{}, fmt.Errorf("minCandidateNodesAbsolute: %d is negative", absolute)
	case percent == 0 && absolute == 0:
		return plugin{}, errors.New("minCandidateNodesPercentage and minCandidateNodesAbsolute are both 0")
	}
	return plugin{
		Plugin: scheduling.Plugin{Name: PreemptionName},
		preemption: &Preemption{
			MinPercent: int(*a.MinCandidateNodesPercentage), MinAbsolute: int(*a.MinCandidateNodesAbsolute),
		},
	}, nil
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// maker creates the plugins of a profile from their configured arguments.
type maker struct {
	factories map[string]factory
	args      map[string]json.RawMessage
	extenders []*extender.Extender
}

func newMaker(c *configv1.KubeSchedulerProfile, extra Registry, extenders []*extender.Extender) (*maker, error) {
	m := &maker{factories: map[string]factory{}, args: map[string]json.RawMessage{}, extenders: extenders}
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
		m.factories[name] = public(f)
	}
	for _, p := range c.PluginConfig {
		if _, twice := m.args[p.Name]; twice {
			return nil, fmt.Errorf("pluginConfig of %s: given twice", p.Name)
		}
		m.args[p.Name] = p.Args.Raw
	}
	return m, nil
}

func (m *maker) plugin(name string) (plugin, error) {
	f := m.factories[name]
	if f == nil {
		return plugin{}, fmt.Errorf("plugin %s: is not known", name)
	}
	p, err := f(m.args[name], m.extenders)
	if err != nil {
		return plugin{}, fmt.Errorf("plugin %s: %w", name, err)
	}
	if p.Name != name {
		return plugin{}, fmt.Errorf("plugin %s: its factory made a plugin with the name %q", name, p.Name)
	}
	if p.Filter != nil && p.Filter.Compile == nil && p.compile == nil || p.Score != nil && p.Score.Compile == nil {
		return plugin{}, fmt.Errorf("plugin %s: an extension point has no function Compile", name)
	}
	delete(m.args, name)
	return p, nil
}

// unused returns an error if the configuration has arguments for plugins that are not enabled.
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
