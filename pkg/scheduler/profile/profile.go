// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile turns a KubeSchedulerConfiguration into profiles: which
// plugins judge the pods of one schedulerName, in which order and with which
// weight. The table of built-in plugins is here.
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
	"keelson.dev/keelson/pkg/scheduler/plugins/noderesources"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/scheduling"
)

// Weighted is a score plugin with its weight.
type Weighted struct {
	scheduling.ScorePlugin
	Weight int64
}

// Profile is how the pods of one schedulerName are scheduled. It is immutable.
type Profile struct {
	Name string
	// NodeFilters have NodeScope; they run before CellFilters. Within each, the
	// order is that of the configuration.
	NodeFilters, CellFilters []scheduling.FilterPlugin
	NodeScores, CellScores   []Weighted
	Gates                    []scheduling.GatePlugin
	Preemption               *Preemption // nil: pods of this profile never preempt
	// DeviceTimeout is how long a pod waits for its devices to be attached; 0:
	// claims of devices are not looked at.
	DeviceTimeout time.Duration
}

// Preemption bounds how many nodes are looked at for victims.
type Preemption struct {
	MinPercent  int // of the nodes
	MinAbsolute int
}

// Set is all that a scheduler is configured with.
type Set struct {
	Profiles       map[string]*Profile
	Sort           scheduling.QueueSortPlugin
	InitialBackoff time.Duration
	MaxBackoff     time.Duration
	BindTimeout    time.Duration // for volumes
	Extenders      []*extender.Extender
}

// Gate returns the first objection of the pod's profile against queueing it.
func (s *Set) Gate(pod *v1.Pod) *scheduling.Status {
	p := s.Profiles[pod.Spec.SchedulerName]
	if p == nil {
		return nil
	}
	for _, g := range p.Gates {
		if st := g.Gate(pod); st != nil {
			return st
		}
	}
	return nil
}

// Load reads a KubeSchedulerConfiguration file. Fields that are not known are errors.
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
		return nil, fmt.Errorf("configuration %s: is %s %s, not %s KubeSchedulerConfiguration", file, c.APIVersion, c.Kind, configv1.SchemeGroupVersion)
	}
	return &c, nil
}

// Build makes the profiles of a configuration; without any there is one of
// the name default-scheduler with the defaults. Extra are plugins beyond the
// built-in ones.
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

// extend makes the extenders. Those that may be ignored come last.
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
	made, err := newMaker(c, extra)
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

// place puts a plugin where it is enabled and has something to do.
func (s *Set) place(p *Profile, plugin scheduling.Plugin, chosen *selection) error {
	name := plugin.Name()
	if fit, ok := plugin.(*noderesources.Fit); ok {
		for _, e := range s.Extenders {
			for _, r := range e.IgnoredResources() {
				fit.Ignored[r] = true
			}
		}
	}
	if v, ok := plugin.(volumebinding.Plugin); ok && v.BindTimeout > 0 {
		s.BindTimeout = v.BindTimeout
	}
	if d, ok := plugin.(*dynamicresources.Plugin); ok && chosen.filter.has(name) {
		p.DeviceTimeout = d.BindingTimeout
	}
	if f, ok := plugin.(scheduling.FilterPlugin); ok && chosen.filter.has(name) {
		if f.Scope() == scheduling.NodeScope {
			p.NodeFilters = append(p.NodeFilters, f)
		} else {
			p.CellFilters = append(p.CellFilters, f)
		}
	}
	if f, ok := plugin.(scheduling.ScorePlugin); ok && chosen.score.has(name) {
		w := Weighted{f, chosen.score.weight(name)}
		if f.ScoreScope() == scheduling.NodeScope {
			p.NodeScores = append(p.NodeScores, w)
		} else {
			p.CellScores = append(p.CellScores, w)
		}
	}
	if f, ok := plugin.(scheduling.GatePlugin); ok && chosen.gate.has(name) {
		p.Gates = append(p.Gates, f)
	}
	if f, ok := plugin.(scheduling.QueueSortPlugin); ok && chosen.sort.has(name) {
		if s.Sort != nil && s.Sort.Name() != name {
			return fmt.Errorf("the queue is sorted by %s already; all profiles share one queue", s.Sort.Name())
		}
		s.Sort = f
	}
	if f, ok := plugin.(*Preemption); ok && chosen.postFilter.has(name) {
		p.Preemption = f
	}
	return nil
}
