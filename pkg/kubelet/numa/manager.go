// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// Names of policies and scopes. Kubernetes uses the same ones.
const (
	PolicyNone       = "none"
	PolicyBestEffort = "best-effort"
	PolicyRestricted = "restricted"
	PolicySingleNode = "single-numa-node"

	ScopeContainer = "container"
	ScopePod       = "pod"

	optionClosest = "prefer-closest-numa-nodes"
	optionMaximum = "max-allowable-numa-nodes"
	// defaultMaximum is the default of the largest number of NUMA nodes with which the Manager
	// starts. The number of sets of nodes grows exponentially with it.
	defaultMaximum = 8
)

// Reason and messages in the status of a pod that is rejected. Users see them.
const (
	ReasonAffinity  = "TopologyAffinityError"
	messageAffinity = "Resources cannot be allocated with Topology locality"
	messagePod      = "Pod Scope " + messageAffinity
)

// AffinityError is the error for a pod whose resources cannot come from NUMA nodes that the policy
// accepts.
type AffinityError struct{ message string }

// Error returns the message for the pod's status.
func (e *AffinityError) Error() string { return e.message }

// Provider assigns one kind of resource of the machine, such as CPUs, to containers.
type Provider interface {
	// Hints returns the sets of nodes that can provide what the container requests.
	Hints(pod *v1.Pod, c *v1.Container) Hints
	// PodHints returns the sets of nodes that can provide what all containers of the pod request
	// together.
	PodHints(pod *v1.Pod) Hints
	// Allocate assigns what the container requests, from the nodes of the hint near. A container
	// that already has its resources keeps them.
	Allocate(ctx context.Context, pod *v1.Pod, c *v1.Container, near Hint) error
}

// Config holds a Manager's settings.
type Config struct {
	Layout *Layout
	// Policy, Scope and Options come from the kubelet's configuration.
	Policy, Scope string
	Options       map[string]string
	// Providers are called in the order of this list.
	Providers []Provider
	Metrics   prometheus.Registerer
}

// Manager assigns the resources of pods to NUMA nodes. It is safe for concurrent use if its
// providers are, except that pods must be admitted one at a time.
type Manager struct {
	cfg             Config
	closest         bool
	requests, fails prometheus.Counter
}

// New returns a Manager.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg}
	if m.cfg.Policy == "" {
		m.cfg.Policy = PolicyNone
	}
	if m.cfg.Scope == "" {
		m.cfg.Scope = ScopeContainer
	}
	switch m.cfg.Policy {
	case PolicyNone, PolicyBestEffort, PolicyRestricted, PolicySingleNode:
	default:
		return nil, fmt.Errorf("unknown policy: %q", cfg.Policy)
	}
	if m.cfg.Scope != ScopeContainer && m.cfg.Scope != ScopePod {
		return nil, fmt.Errorf("unknown scope: %q", cfg.Scope)
	}
	maximum := defaultMaximum
	for name, value := range cfg.Options {
		var err error
		switch name {
		case optionClosest:
			m.closest, err = strconv.ParseBool(value)
		case optionMaximum:
			if maximum, err = strconv.Atoi(value); err == nil && maximum < defaultMaximum {
				return nil, fmt.Errorf("the minimum value of %q should not be less than %v", name, defaultMaximum)
			}
		default:
			return nil, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
		if err != nil {
			return nil, fmt.Errorf("bad value for option %q: %w", name, err)
		}
	}
	if n := len(cfg.Layout.Nodes); m.cfg.Policy != PolicyNone && n > min(maximum, maxNode+1) {
		return nil, fmt.Errorf("unsupported on machines with more than %v NUMA Nodes", maximum)
	}
	m.requests = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_topology_manager_admission_requests_total",
		Help: "[ALPHA] The number of admission requests where resources have to be aligned."})
	m.fails = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_topology_manager_admission_errors_total",
		Help: "[ALPHA] The number of admission request failures where resources could not be aligned."})
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(m.requests, m.fails)
	}
	return m, nil
}

// Admit makes the providers assign what the pod's containers request. If Admit fails, some
// resources may remain assigned. The caller must then free the resources of the rejected pod.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod) error {
	m.requests.Inc()
	err := m.admit(ctx, pod)
	if err != nil {
		m.fails.Inc()
	}
	return err
}

func (m *Manager) admit(ctx context.Context, pod *v1.Pod) error {
	near := Hint{}
	whole := m.cfg.Policy != PolicyNone && m.cfg.Scope == ScopePod
	if whole {
		var all []Hints
		for _, p := range m.cfg.Providers {
			all = append(all, p.PodHints(pod))
		}
		var ok bool
		if near, ok = m.decide(all); !ok {
			return &AffinityError{messagePod}
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if m.cfg.Policy != PolicyNone && !whole {
				var all []Hints
				for _, p := range m.cfg.Providers {
					all = append(all, p.Hints(pod, c))
				}
				var ok bool
				if near, ok = m.decide(all); !ok {
					return &AffinityError{messageAffinity}
				}
			}
			for _, p := range m.cfg.Providers {
				if err := p.Allocate(ctx, pod, c, near); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// decide merges hints according to the policy. It reports whether the policy admits the pod with
// the resulting hint.
func (m *Manager) decide(all []Hints) (Hint, bool) {
	hints := lists(all)
	switch m.cfg.Policy {
	case PolicyBestEffort:
		return merge(m.cfg.Layout, m.closest, hints), true
	case PolicyRestricted:
		h := merge(m.cfg.Layout, m.closest, hints)
		return h, h.Preferred
	}
	h := merge(m.cfg.Layout, false, onlySingle(hints))
	if h.Nodes == m.cfg.Layout.mask() {
		h.Nodes = 0 // all nodes are the same as no preference
	}
	return h, h.Preferred
}
