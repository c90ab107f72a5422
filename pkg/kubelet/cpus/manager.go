// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/numa"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Names of the policies in the configuration.
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// ReasonAlignment is the reason for rejecting a pod because whole cores cannot be assigned.
const ReasonAlignment = "SMTAlignmentError"

// AlignmentError is returned if whole cores are required but cannot be assigned.
type AlignmentError struct{ message string }

// Error returns the message.
func (e *AlignmentError) Error() string { return e.message }

// Config holds a Manager's settings.
type Config struct {
	Layout *numa.Layout
	// Policy is PolicyNone or PolicyStatic.
	Policy  string
	Options Options
	// TopologyPolicy is the name of the topology manager's policy.
	TopologyPolicy string
	// Reserved are the CPUs that are never assigned exclusively. If it is empty, the Manager
	// reserves Count CPUs of its choice.
	Reserved cpuset.CPUSet
	Count    int
	// File is the path of the file that stores the assignments.
	File string
	// Changed is called when the set of shared CPUs changes. It must not block.
	Changed func()
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager assigns CPUs exclusively to containers. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// reserved are the CPUs that are never assigned exclusively. cores are all CPUs (threads) of
	// the cores that have a reserved CPU.
	reserved, cores cpuset.CPUSet
	threads         int // number of threads of each core

	requests, fails prometheus.Counter

	mu    sync.Mutex
	given map[types.UID]map[string]cpuset.CPUSet // exclusive CPUs by pod and container
}

var _ numa.Provider = (*Manager)(nil)

// New returns a Manager that starts with the assignments stored in the file.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, given: map[types.UID]map[string]cpuset.CPUSet{}}
	m.metrics()
	switch cfg.Policy {
	case "", PolicyNone:
		m.cfg.Policy = PolicyNone
		return m, m.load()
	case PolicyStatic:
	default:
		return nil, fmt.Errorf("unknown policy: %q", cfg.Policy)
	}
	if err := cfg.Options.fit(cfg.Layout, cfg.TopologyPolicy); err != nil {
		return nil, err
	}
	if m.reserved = cfg.Reserved; m.reserved.IsEmpty() {
		var err error
		if m.reserved, err = take(cfg.Layout, cfg.Options, cfg.Layout.All(), cfg.Count); err != nil {
			return nil, fmt.Errorf("reserved CPUs: %w", err)
		}
	}
	if m.reserved.IsEmpty() {
		return nil, errors.New("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
	}
	if !m.reserved.IsSubsetOf(cfg.Layout.All()) {
		return nil, fmt.Errorf("reserved CPUs %s are not all among those of the machine, %s", m.reserved, cfg.Layout.All())
	}
	m.threads = len(cfg.Layout.CPUs) / cfg.Layout.Count(coreOf)
	taken := map[int]bool{}
	for _, c := range cfg.Layout.CPUs {
		taken[c.Core] = taken[c.Core] || m.reserved.Contains(c.ID)
	}
	m.cores = cfg.Layout.Select(func(c numa.CPU) bool { return taken[c.Core] })
	return m, m.load()
}

func (m *Manager) metrics() {
	m.requests = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_cpu_manager_pinning_requests_total",
		Help: "[ALPHA] The number of cpu core allocations which required pinning."})
	m.fails = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_cpu_manager_pinning_errors_total",
		Help: "[ALPHA] The number of cpu core allocations which required pinning failed."})
	given := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_cpu_manager_exclusive_cpu_allocation_count",
		Help: "[ALPHA] The total number of CPUs exclusively allocated to containers running on this node"}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(m.exclusive().Size())
	})
	if m.cfg.Metrics != nil {
		m.cfg.Metrics.MustRegister(m.requests, m.fails, given)
	}
}

// exclusive returns all CPUs that are assigned to containers. The caller holds the lock.
func (m *Manager) exclusive() cpuset.CPUSet {
	out := cpuset.New()
	for _, containers := range m.given {
		for _, set := range containers {
			out = out.Union(set)
		}
	}
	return out
}

// shared returns the CPUs on which containers without exclusive CPUs run. The caller holds the
// lock.
func (m *Manager) shared() cpuset.CPUSet {
	out := m.cfg.Layout.All().Difference(m.exclusive())
	if m.cfg.Options.StrictReserved {
		out = out.Difference(m.reserved)
	}
	return out
}

// available returns the CPUs that can be assigned now. The caller holds the lock.
func (m *Manager) available() cpuset.CPUSet { return m.shared().Difference(m.reserved) }

// AllowedCPUs returns the CPUs on which a container may run. An empty set means all CPUs.
func (m *Manager) AllowedCPUs(pod types.UID, container string) cpuset.CPUSet {
	if m.cfg.Policy == PolicyNone {
		return cpuset.New()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, ok := m.given[pod][container]; ok {
		return set
	}
	return m.shared()
}

// Exclusive reports whether a container has exclusive CPUs. If container is empty, it reports
// whether any container of the pod has.
func (m *Manager) Exclusive(pod types.UID, container string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if container != "" {
		return m.given[pod][container].Size() > 0
	}
	for _, set := range m.given[pod] {
		if set.Size() > 0 {
			return true
		}
	}
	return false
}

// ExclusiveCPUs returns the CPUs that are assigned to a container exclusively.
func (m *Manager) ExclusiveCPUs(pod types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.given[pod][container]
}

// Allocatable returns the CPUs that can be assigned exclusively.
func (m *Manager) Allocatable() cpuset.CPUSet { return m.cfg.Layout.All().Difference(m.reserved) }

// Static reports whether the policy is static. With the other policy, no CPUs are assigned.
func (m *Manager) Static() bool { return m.cfg.Policy == PolicyStatic }

// asks returns how many exclusive CPUs a container must get: the number that it requests, or 0 if
// it does not qualify for exclusive CPUs.
func (m *Manager) asks(pod *v1.Pod, c *v1.Container) int {
	if !m.Static() || qos.Class(pod) != v1.PodQOSGuaranteed || helpers.IsPodLevelResourcesSet(pod) {
		return 0
	}
	q := c.Resources.Requests[v1.ResourceCPU]
	if q.Value()*1000 != q.MilliValue() {
		return 0
	}
	return int(q.Value())
}

// reusable returns the CPUs of the pod's init containers that its later containers may use, because
// these init containers will have ended by then. The caller holds the lock.
func (m *Manager) reusable(pod *v1.Pod) cpuset.CPUSet {
	left, kept := cpuset.New(), cpuset.New()
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if set := m.given[pod.UID][c.Name]; sidecar(c) {
			kept = kept.Union(set)
		} else {
			left = left.Union(set)
		}
	}
	for i := range pod.Spec.Containers {
		kept = kept.Union(m.given[pod.UID][pod.Spec.Containers[i].Name])
	}
	return left.Difference(kept)
}

func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Allocate implements numa.Provider. It assigns the CPUs that the container requests, if possible
// on the NUMA nodes in near.
func (m *Manager) Allocate(_ context.Context, pod *v1.Pod, c *v1.Container, near numa.Hint) error {
	needed := m.asks(pod, c)
	if needed == 0 {
		return nil
	}
	m.requests.Inc()
	err := m.allocate(pod, c, needed, near.Nodes)
	if err != nil {
		m.fails.Inc()
	}
	return err
}

func (m *Manager) allocate(pod *v1.Pod, c *v1.Container, needed int, near numa.Mask) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, has := m.given[pod.UID][c.Name]; has {
		return nil
	}
	if err := m.aligned(needed); err != nil {
		return err
	}
	free := m.available().Union(m.reusable(pod))
	some := cpuset.New()
	if near != 0 {
		nearby := free.Intersection(m.near(near))
		var err error
		if some, err = take(m.cfg.Layout, m.cfg.Options, nearby, min(needed, nearby.Size())); err != nil {
			return err
		}
	}
	rest, err := take(m.cfg.Layout, m.cfg.Options, free.Difference(some), needed-some.Size())
	if err != nil {
		return err
	}
	before := m.shared()
	if m.given[pod.UID] == nil {
		m.given[pod.UID] = map[string]cpuset.CPUSet{}
	}
	m.given[pod.UID][c.Name] = some.Union(rest)
	m.noteChange(before)
	return nil
}

// aligned returns an error if the policy assigns only whole cores and needed is not a number of
// whole free cores. The caller holds the lock.
func (m *Manager) aligned(needed int) error {
	if !m.cfg.Options.FullCores {
		return nil
	}
	if needed%m.threads != 0 {
		return &AlignmentError{
			fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", needed, m.threads)}
	}
	// The free threads of a core with a reserved thread do not count.
	if free := m.shared().Difference(m.cores).Size(); needed > free {
		return &AlignmentError{fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available "+
			"physical CPUs = %d, requested CPUs = %d, CPUs per core = %d",
			free, needed, m.threads)}
	}
	return nil
}

// near returns the CPUs of the given NUMA nodes or, with the option BySocket, of the sockets of
// these nodes.
func (m *Manager) near(nodes numa.Mask) cpuset.CPUSet {
	if !m.cfg.Options.BySocket {
		return m.cfg.Layout.CPUsOf(nodes)
	}
	sockets := m.sockets(nodes)
	return m.cfg.Layout.Select(func(c numa.CPU) bool { return sockets[c.Socket] })
}

func (m *Manager) sockets(nodes numa.Mask) map[int]bool {
	out := map[int]bool{}
	for _, c := range m.cfg.Layout.CPUs {
		if nodes.Has(c.Node) {
			out[c.Socket] = true
		}
	}
	return out
}

// noteChange writes the file. It calls Changed if the shared CPUs differ from the earlier ones in
// the argument before. The caller holds the lock.
func (m *Manager) noteChange(before cpuset.CPUSet) {
	m.save()
	if !before.Equals(m.shared()) {
		m.cfg.Changed()
	}
}

// Pods returns the UIDs of the pods that have exclusive CPUs.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.given))
}

// Free releases the CPUs of a pod whose containers have all ended.
func (m *Manager) Free(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.given[uid]; ok {
		before := m.shared()
		delete(m.given, uid)
		m.noteChange(before)
	}
}
