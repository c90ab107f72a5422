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

// Policies, as Kubernetes names them.
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// ReasonAlignment is why a pod is refused that does not ask for whole cores.
const ReasonAlignment = "SMTAlignmentError"

// AlignmentError is why whole cores cannot be given.
type AlignmentError struct{ message string }

// Error returns the message.
func (e *AlignmentError) Error() string { return e.message }

// Config is what a Manager is made of.
type Config struct {
	Layout *numa.Layout
	// Policy is PolicyNone or PolicyStatic.
	Policy  string
	Options Options
	// TopologyPolicy is that of the topology manager.
	TopologyPolicy string
	// Reserved are the CPUs that nobody gets for himself; if there are none, Count CPUs are chosen.
	Reserved cpuset.CPUSet
	Count    int
	// File is where what was given is kept.
	File string
	// Changed is called when the CPUs of all those without CPUs of their own are others. It must not block.
	Changed func()
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager gives CPUs to containers. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// reserved are kept from exclusive use, cores are they with the other threads of their cores.
	reserved, cores cpuset.CPUSet
	threads         int // of a core

	requests, fails prometheus.Counter

	mu    sync.Mutex
	given map[types.UID]map[string]cpuset.CPUSet // by container
}

var _ numa.Provider = (*Manager)(nil)

// New makes a Manager with what the file remembers.
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
	m.cores = cfg.Layout.Where(func(c numa.CPU) bool { return taken[c.Core] })
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

// exclusive are the CPUs that were given. The caller holds the lock.
func (m *Manager) exclusive() cpuset.CPUSet {
	out := cpuset.New()
	for _, containers := range m.given {
		for _, set := range containers {
			out = out.Union(set)
		}
	}
	return out
}

// shared are the CPUs of all those that have none of their own. The caller holds the lock.
func (m *Manager) shared() cpuset.CPUSet {
	out := m.cfg.Layout.All().Difference(m.exclusive())
	if m.cfg.Options.StrictReserved {
		out = out.Difference(m.reserved)
	}
	return out
}

// available are the CPUs that can be given. The caller holds the lock.
func (m *Manager) available() cpuset.CPUSet { return m.shared().Difference(m.reserved) }

// On returns the CPUs that a container is to run on; the empty set stands for all.
func (m *Manager) On(pod types.UID, container string) cpuset.CPUSet {
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

// Exclusive reports whether a container has CPUs of its own, or one of the pod's containers if it is "".
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

// Own returns the CPUs that a container has for itself.
func (m *Manager) Own(pod types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.given[pod][container]
}

// Allocatable are the CPUs that containers can have for themselves.
func (m *Manager) Allocatable() cpuset.CPUSet { return m.cfg.Layout.All().Difference(m.reserved) }

// Static reports whether CPUs are given at all.
func (m *Manager) Static() bool { return m.cfg.Policy == PolicyStatic }

// asks is how many CPUs the container is to have for itself.
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

// reusable are the CPUs that init containers leave to those after them. The caller holds the lock.
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

// Allocate implements numa.Provider.
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
		close := free.Intersection(m.near(near))
		var err error
		if some, err = take(m.cfg.Layout, m.cfg.Options, close, min(needed, close.Size())); err != nil {
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

// aligned refuses what is no number of whole cores where only these are given. The caller holds the lock.
func (m *Manager) aligned(needed int) error {
	if !m.cfg.Options.FullCores {
		return nil
	}
	if needed%m.threads != 0 {
		return &AlignmentError{fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", needed, m.threads)}
	}
	// Reserved threads may leave half cores, which must not be put together.
	if free := m.shared().Difference(m.cores).Size(); needed > free {
		return &AlignmentError{fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d",
			free, needed, m.threads)}
	}
	return nil
}

// near are the CPUs of nodes, or of the sockets that these are in.
func (m *Manager) near(nodes numa.Mask) cpuset.CPUSet {
	if !m.cfg.Options.BySocket {
		return m.cfg.Layout.Of(nodes)
	}
	sockets := m.sockets(nodes)
	return m.cfg.Layout.Where(func(c numa.CPU) bool { return sockets[c.Socket] })
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

// noteChange writes the file, and tells of it if those without CPUs of their own have others
// now. The caller holds the lock.
func (m *Manager) noteChange(before cpuset.CPUSet) {
	m.save()
	if !before.Equals(m.shared()) {
		m.cfg.Changed()
	}
}

// Pods are the pods that have CPUs for themselves.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.given))
}

// Free takes back what a pod has of which nothing runs any more.
func (m *Manager) Free(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.given[uid]; ok {
		before := m.shared()
		delete(m.given, uid)
		m.noteChange(before)
	}
}
