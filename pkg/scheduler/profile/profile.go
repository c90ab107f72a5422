// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile builds scheduling profiles from a KubeSchedulerConfiguration. A profile has the
// plugins for the pods with one schedulerName, with their order and weights. The package also has
// the table of built-in plugins.
package profile

import (
	"fmt"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/scheduler/extender"
	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/plugins/restorehold"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/scheduling"
)

// Filter is the filter of one plugin in a profile.
type Filter struct {
	Plugin string
	// Events are the events after which a pod that the plugin rejected may fit.
	Events scheduling.Event
	// Compile does the same as scheduling.FilterPoint.Compile. It also returns parts that are not
	// in the public API.
	Compile func(view scheduling.View, pod *scheduling.Pod) (Compiled, *scheduling.Status)
}

// Compiled is a plugin's filter for one pod. If the filter also plans which volumes or devices the
// pod gets, Volumes or Devices refers to the same filter; otherwise they are nil.
type Compiled struct {
	scheduling.Filter
	Volumes *volumebinding.Filter
	Devices *dynamicresources.Filter
}

// Score is the scorer of one plugin in a profile.
type Score struct {
	Plugin  string
	Weight  int64
	Compile func(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer
}

// Profile has the plugins and settings for scheduling the pods of one schedulerName. It is
// immutable.
type Profile struct {
	Name string
	// NodeFilters have NodeScope (their result depends on one node only), and run before
	// CellFilters. Within each slice, plugins are in the order of the configuration.
	NodeFilters, CellFilters []Filter
	NodeScores, CellScores   []Score
	Gates                    []func(pod *v1.Pod) *scheduling.Status
	Preemption               *Preemption // nil if pods of this profile never preempt
	// DeviceTimeout is how long the scheduler waits until a pod's devices are attached. It is 0 if
	// the plugin DynamicResources is not enabled.
	DeviceTimeout time.Duration
}

// Gate returns the status of the first plugin of the profile that keeps a pod from being scheduled,
// or nil. Every profile has the gate of held pods.
func (p *Profile) Gate(pod *v1.Pod) *scheduling.Status {
	if st := restorehold.Gate(pod); st != nil {
		return st
	}
	for _, gate := range p.Gates {
		if st := gate(pod); st != nil {
			return st
		}
	}
	return nil
}

// Preemption sets how many candidate nodes preemption collects before it stops its search.
type Preemption struct {
	MinPercent  int // percentage of all nodes
	MinAbsolute int
}

// Set is the whole configuration of a scheduler: all profiles and the settings that they share.
type Set struct {
	Profiles map[string]*Profile
	// SortPlugin is the name of the plugin that orders the queue. Less is that plugin's function to
	// compare two pods.
	SortPlugin     string
	Less           func(a, b scheduling.QueuedPod) bool
	InitialBackoff time.Duration
	MaxBackoff     time.Duration
	BindTimeout    time.Duration // how long to wait until volumes are bound
	Extenders      []*extender.Extender
}

// DisableScore removes the scorer of a plugin from all profiles. It must be called before the
// scheduler uses them.
func (s *Set) DisableScore(plugin string) {
	is := func(score Score) bool { return score.Plugin == plugin }
	for _, p := range s.Profiles {
		p.NodeScores, p.CellScores = slices.DeleteFunc(p.NodeScores, is), slices.DeleteFunc(p.CellScores, is)
	}
}

// Gate returns the status of the first plugin of the pod's profile that keeps the pod from being
// scheduled, or nil.
func (s *Set) Gate(pod *v1.Pod) *scheduling.Status {
	p := s.Profiles[pod.Spec.SchedulerName]
	if p == nil {
		return nil
	}
	return p.Gate(pod)
}

// Load reads a KubeSchedulerConfiguration file. An unknown field is an error.
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

// Build builds the profiles of a configuration. If the configuration has no profiles, Build returns
// one profile with the name default-scheduler and the default plugins. extra has plugins besides
// the built-in ones.
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

// extend adds the configured extenders to the set. Ignorable extenders come last.
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

// place adds a plugin to the profile at each extension point that the plugin implements and at
// which the configuration enables it.
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
