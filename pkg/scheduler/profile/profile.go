// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile builds profiles from a KubeSchedulerConfiguration: the plugins for the pods of
// one schedulerName, with their order and weights. It has the table of built-in plugins.
package profile

import (
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/scheduler/extender"
	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/scheduling"
)

// Filter is the filter of one plugin in a profile.
type Filter struct {
	Plugin string
	// Events are the changes that can make a pod fit that the plugin rejected.
	Events scheduling.Event
	// Compile is scheduling.FilterPoint.Compile, and also returns parts that are not in the public
	// API.
	Compile func(view scheduling.View, pod *scheduling.Pod) (Compiled, *scheduling.Status)
}

// Compiled is the filter of one pod. A filter that also plans which volumes or devices the pod gets
// is in Volumes or Devices as well; both are nil for other plugins.
type Compiled struct {
	scheduling.Filter
	Volumes *volumebinding.Filter
	Devices *dynamicresources.Filter
}

// Score is the score of one plugin in a profile.
type Score struct {
	Plugin  string
	Weight  int64
	Compile func(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer
}

// Profile is how the pods of one schedulerName are scheduled. It is immutable.
type Profile struct {
	Name string
	// NodeFilters have NodeScope and run before CellFilters. Both are in the order of the
	// configuration.
	NodeFilters, CellFilters []Filter
	NodeScores, CellScores   []Score
	Gates                    []func(pod *v1.Pod) *scheduling.Status
	Preemption               *Preemption // nil if pods of this profile never preempt
	// DeviceTimeout is how long a pod waits for its devices to be attached. It is 0 if
	// DynamicResources is not enabled.
	DeviceTimeout time.Duration
}

// Gate returns the first objection of the profile's plugins to queueing a pod, or nil.
func (p *Profile) Gate(pod *v1.Pod) *scheduling.Status {
	for _, gate := range p.Gates {
		if st := gate(pod); st != nil {
			return st
		}
	}
	return nil
}

// Preemption limits how many nodes are searched for victims.
type Preemption struct {
	MinPercent  int // minimum percentage of the nodes that are searched
	MinAbsolute int
}

// Set is the whole configuration of a scheduler.
type Set struct {
	Profiles map[string]*Profile
	// SortPlugin is the name of the plugin that orders the queue, and Less the function that
	// compares two pods.
	SortPlugin     string
	Less           func(a, b scheduling.QueuedPod) bool
	InitialBackoff time.Duration
	MaxBackoff     time.Duration
	BindTimeout    time.Duration // timeout of binding volumes
	Extenders      []*extender.Extender
}

// Gate returns the first objection of the pod's profile to queueing it, or nil.
func (s *Set) Gate(pod *v1.Pod) *scheduling.Status {
	p := s.Profiles[pod.Spec.SchedulerName]
	if p == nil {
		return nil
	}
	return p.Gate(pod)
}

// Load reads a KubeSchedulerConfiguration file. Unknown fields are errors.
func Load(file string) (*configv1.KubeSchedulerConfiguration, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var c configv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	if c.APIVersion != configv1.SchemeGroupVersion.String() || c.Kind != "KubeSchedulerConfiguration" {
		return nil, fmt.Errorf("configuration %s: is %s %s, not %s KubeSchedulerConfiguration", file,
			c.APIVersion, c.Kind, configv1.SchemeGroupVersion)
	}
	return &c, nil
}

// Build builds the profiles of a configuration. If it has no profiles, Build returns one with the
// name default-scheduler and the defaults. extra has plugins beside the built-in ones.
func Build(c *configv1.KubeSchedulerConfiguration, extra Registry) (*Set, error) {
	s := &Set{
		Profiles:       map[string]*Profile{},
		InitialBackoff: seconds(c.PodInitialBackoffSeconds, time.Second),
		MaxBackoff:     seconds(c.PodMaxBackoffSeconds, 10*time.Second),
		BindTimeout:    bindTimeout,
	}
	if s.InitialBackoff <= 0 || s.MaxBackoff < s.InitialBackoff {
		return nil, fmt.Errorf("podInitialBackoffSeconds must be positive, and podMaxBackoffSeconds at least as large")
	}
	if err := s.extend(c.Extenders); err != nil {
		return nil, err
	}
	profiles := c.Profiles
	if len(profiles) == 0 {
		profiles = []configv1.KubeSchedulerProfile{{}}
	}
	for i := range profiles {
		if err := s.build(&profiles[i], extra); err != nil {
			return nil, fmt.Errorf("profiles[%d]: %w", i, err)
		}
	}
	return s, nil
}

// extend adds the extenders. Extenders that may be ignored come last.
func (s *Set) extend(configs []configv1.Extender) error {
	var ignorable []*extender.Extender
	binders := 0
	for i := range configs {
		e, err := extender.New(configs[i])
		if err != nil {
			return fmt.Errorf("extenders[%d]: %w", i, err)
		}
		if e.Binds() {
			binders++
		}
		if e.Ignorable() {
			ignorable = append(ignorable, e)
		} else {
			s.Extenders = append(s.Extenders, e)
		}
	}
	if binders > 1 {
		return fmt.Errorf("extenders: found %d extenders implementing bind, allowed 1", binders)
	}
	s.Extenders = append(s.Extenders, ignorable...)
	return nil
}

func seconds(v *int64, fallback time.Duration) time.Duration {
	if v == nil {
		return fallback
	}
	return time.Duration(*v) * time.Second
}

func (s *Set) build(c *configv1.KubeSchedulerProfile, extra Registry) error {
	p := &Profile{Name: v1.DefaultSchedulerName}
	if c.SchedulerName != nil {
		p.Name = *c.SchedulerName
	}
	if s.Profiles[p.Name] != nil {
		return fmt.Errorf("schedulerName %q: used twice", p.Name)
	}
	made, err := newMaker(c, extra, s.Extenders)
	if err != nil {
		return err
	}
	chosen := choose(c.Plugins)
	for _, name := range chosen.all() {
		plugin, err := made.plugin(name)
		if err != nil {
			return err
		}
		if err := s.place(p, plugin, chosen); err != nil {
			return fmt.Errorf("plugin %s: %w", name, err)
		}
	}
	if err := made.unused(); err != nil {
		return err
	}
	s.Profiles[p.Name] = p
	return nil
}

// place adds a plugin at each extension point that it implements and where it is enabled.
func (s *Set) place(p *Profile, made plugin, chosen *selection) error {
	name := made.Name
	if f := made.Filter; f != nil && chosen.filter.has(name) {
		filter := Filter{Plugin: name, Events: f.Events, Compile: made.compile}
		if filter.Compile == nil {
			filter.Compile = func(view scheduling.View, pod *scheduling.Pod) (Compiled, *scheduling.Status) {
				compiled, st := f.Compile(view, pod)
				return Compiled{Filter: compiled}, st
			}
		}
		if f.Scope == scheduling.NodeScope {
			p.NodeFilters = append(p.NodeFilters, filter)
		} else {
			p.CellFilters = append(p.CellFilters, filter)
		}
		p.DeviceTimeout = max(p.DeviceTimeout, made.deviceTimeout)
	}
	if f := made.Score; f != nil && chosen.score.has(name) {
		score := Score{Plugin: name, Weight: chosen.score.weight(name), Compile: f.Compile}
		if f.Scope == scheduling.NodeScope {
			p.NodeScores = append(p.NodeScores, score)
		} else {
			p.CellScores = append(p.CellScores, score)
		}
	}
	if made.Gate != nil && chosen.gate.has(name) {
		p.Gates = append(p.Gates, made.Gate)
	}
	if made.Less != nil && chosen.sort.has(name) {
		if s.Less != nil && s.SortPlugin != name {
			return fmt.Errorf("the queue is sorted by %s already; all profiles share one queue", s.SortPlugin)
		}
		s.SortPlugin, s.Less = name, made.Less
	}
	if made.preemption != nil && chosen.postFilter.has(name) {
		p.Preemption = made.preemption
	}
	if made.bindTimeout > 0 {
		s.BindTimeout = made.bindTimeout
	}
	return nil
}
