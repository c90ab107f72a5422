// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/numa"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Names of the policies. Kubernetes uses the same ones.
const (
	PolicyNone   = "None"
	PolicyStatic = "Static"
)

// Config holds a Manager's settings.
type Config struct {
	Layout *numa.Layout
	// Policy is PolicyNone or PolicyStatic.
	Policy string
	// Reserved is the memory of each NUMA node that is not assigned to containers. Its sum over all
	// nodes must be equal to NodeReserved, the memory that is not allocatable to pods.
	Reserved     []kubeletconfig.MemoryReservation
	NodeReserved v1.ResourceList
	// File is the path of the file that stores the assignments.
	File    string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager assigns memory to containers. It is safe for concurrent use.
type Manager struct {
	cfg             Config
	kept            map[int]map[v1.ResourceName]uint64
	requests, fails prometheus.Counter

	mu    sync.Mutex
	nodes NUMANodeMap
	given ContainerMemoryAssignments
}

var _ numa.Provider = (*Manager)(nil)

// New returns a Manager, and reads the assignments from the file.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, given: ContainerMemoryAssignments{}}
	m.requests = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_memory_manager_pinning_requests_total",
		Help: "[ALPHA] The number of memory pages allocations which required pinning."})
	m.fails = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_memory_manager_pinning_errors_total",
		Help: "[ALPHA] The number of memory pages allocations which required pinning that failed."})
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(m.requests, m.fails)
	}
	switch cfg.Policy {
	case "", PolicyNone:
		m.cfg.Policy = PolicyNone
	case PolicyStatic:
		if err := m.reserve(); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown policy: %q", cfg.Policy)
	}
	m.nodes = machine(cfg.Layout, m.kept)
	return m, m.load()
}

// reserve reads cfg.Reserved into m.kept and checks the sum of each resource.
func (m *Manager) reserve() error {
	m.kept = map[int]map[v1.ResourceName]uint64{}
	total := map[v1.ResourceName]resource.Quantity{}
	for _, r := range m.cfg.Reserved {
		id := int(r.NumaNode)
		if !slices.Contains(m.cfg.Layout.NodeIDs(), id) {
			return fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not "+
				"exist on this machine", id)
		}
		if m.kept[id] == nil {
			m.kept[id] = map[v1.ResourceName]uint64{}
		}
		for name, q := range r.Limits {
			m.kept[id][name] += uint64(q.Value())
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	for name, q := range m.cfg.NodeReserved {
		if sum := total[name]; counts(name) && sum.Cmp(q) != 0 {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by "+
				"Node Allocatable feature", sum.String(), name, q.String())
		}
	}
	if sum := total[v1.ResourceMemory]; sum.Sign() <= 0 {
		return errors.New("[memorymanager] you should specify the system reserved memory")
	}
	return nil
}

// counts reports whether a resource is one that the Manager assigns: memory or huge pages.
func counts(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// Static reports whether the policy is static. Without the static policy no memory is assigned.
func (m *Manager) Static() bool { return m.cfg.Policy == PolicyStatic }

// asks returns the memory and huge pages that a container requests, or nil if the Manager does not
// manage the pod.
func (m *Manager) asks(pod *v1.Pod, c *v1.Container) map[v1.ResourceName]uint64 {
	if !m.managesPod(pod) {
		return nil
	}
	return requestedBytes(c.Resources.Requests)
}

func (m *Manager) managesPod(pod *v1.Pod) bool {
	return m.Static() && qos.Class(pod) == v1.PodQOSGuaranteed && !helpers.IsPodLevelResourcesSet(pod)
}

func requestedBytes(l v1.ResourceList) map[v1.ResourceName]uint64 {
	out := map[v1.ResourceName]uint64{}
	for name, q := range l {
		if counts(name) {
			out[name] = uint64(q.Value())
		}
	}
	return out
}

// leaves returns how many bytes of a resource on exactly these nodes are assigned to the pod's init
// containers. Later containers can use them. The caller holds m.mu.
func (m *Manager) leaves(pod *v1.Pod, nodes numa.Mask, name v1.ResourceName) uint64 {
	most := uint64(0)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if sidecar(c) {
			continue
		}
		for _, b := range m.given[string(pod.UID)][c.Name] {
			if b.Type == name && numa.MaskOf(b.NUMAAffinity...) == nodes {
				most += b.Size
			}
		}
	}
	return most
}

func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Allocate implements numa.Provider.
func (m *Manager) Allocate(_ context.Context, pod *v1.Pod, c *v1.Container, near numa.Hint) error {
	want := m.asks(pod, c)
	if want == nil {
		return nil
	}
	m.requests.Inc()
	err := m.allocate(pod, c, want, near)
	if err != nil {
		m.fails.Inc()
	}
	return err
}

func (m *Manager) allocate(pod *v1.Pod, c *v1.Container, want map[v1.ResourceName]uint64, near numa.Hint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := string(pod.UID)
	if m.given[uid][c.Name] != nil {
		return nil
	}
	nodes, err := m.choose(pod, want, near)
	if err != nil {
		return err
	}
	var blocks []Block
	for _, name := range slices.Sorted(maps.Keys(want)) {
		size := want[name]
		blocks = append(blocks, Block{NUMAAffinity: nodes.Nodes(), Type: name, Size: size})
		// Memory of an earlier init container moves to this container, so that the pod's memory is
		// not counted twice.
		m.nodes.give(nodes.Nodes(), name, size-m.inherit(pod, c, nodes, name, size))
	}
	if m.given[uid] == nil {
		m.given[uid] = map[string][]Block{}
	}
	m.given[uid][c.Name] = blocks
	m.save()
	return nil
}

// inherit takes up to size bytes from the blocks of earlier init containers on the same nodes. It
// returns how much it took. The caller holds m.mu.
func (m *Manager) inherit(pod *v1.Pod, c *v1.Container, nodes numa.Mask, name v1.ResourceName, size uint64) uint64 {
	got := uint64(0)
	for i := range pod.Spec.InitContainers {
		before := &pod.Spec.InitContainers[i]
		if before.Name == c.Name {
			break
		}
		if sidecar(before) {
			continue
		}
		blocks := m.given[string(pod.UID)][before.Name]
		for j := range blocks {
			if b := &blocks[j]; b.Type == name && numa.MaskOf(b.NUMAAffinity...) == nodes {
				some := min(b.Size, size-got)
				b.Size -= some
				got += some
			}
		}
	}
	return got
}

// choose returns the nodes from which to assign memory. If the nodes of the hint do not have enough
// memory, it adds nodes. Without nodes in the hint it chooses the best nodes. The caller holds
// m.mu.
func (m *Manager) choose(pod *v1.Pod, want map[v1.ResourceName]uint64, near numa.Hint) (numa.Mask, error) {
	best := near
	if near.Nodes == 0 {
		hints := m.hints(pod, want)
		if len(hints) == 0 {
			return 0, errors.New(
				"[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
		}
		if best = bestOf(hints); !best.Preferred && near.Preferred {
			return 0, errors.New("[memorymanager] failed to find the default preferred hint")
		}
	}
	// A node that belongs to a set of several nodes cannot be used alone, even if the other nodes
	// of the set no longer have assignments.
	enough := best.Nodes.Count() != 1 || !m.nodes.grouped(best.Nodes.Nodes()[0])
	for name, size := range want {
		enough = enough && m.nodes.free(best.Nodes, name) >= size
	}
	if !enough {
		around := slices.DeleteFunc(m.hints(pod, want), func(h numa.Hint) bool { return h.Nodes&best.Nodes != best.Nodes })
		if len(around) == 0 {
			return 0, errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		}
		wider := bestOf(around)
		if !wider.Preferred && best.Preferred {
			return 0, errors.New("[memorymanager] failed to find the extended preferred hint")
		}
		best = wider
	}
	if m.nodes.apart(best.Nodes) {
		return 0, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	}
	return best.Nodes, nil
}

func bestOf(hints []numa.Hint) numa.Hint {
	best := hints[0]
	for _, h := range hints[1:] {
		if h.Preferred != best.Preferred && h.Preferred || h.Preferred == best.Preferred && h.Nodes.NarrowerThan(best.Nodes) {
			best = h
		}
	}
	return best
}

// AllowedNodes returns the NUMA nodes from which a container may get memory. An empty mask means all
// NUMA nodes.
func (m *Manager) AllowedNodes(pod types.UID, container string) numa.Mask {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out numa.Mask
	for _, b := range m.given[string(pod)][container] {
		out |= numa.MaskOf(b.NUMAAffinity...)
	}
	return out
}

// Blocks returns the memory that is assigned to a container.
func (m *Manager) Blocks(pod types.UID, container string) []Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.given[string(pod)][container])
}

// Allocatable returns how much memory of each NUMA node can be assigned.
func (m *Manager) Allocatable() []Block {
	if !m.Static() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Block
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		for _, name := range slices.Sorted(maps.Keys(m.nodes[id].MemoryMap)) {
			if size := m.nodes[id].MemoryMap[name].Allocatable; size > 0 {
				out = append(out, Block{NUMAAffinity: []int{id}, Type: name, Size: size})
			}
		}
	}
	return out
}

// Pods returns the pods that have memory assigned.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for uid := range m.given {
		out = append(out, types.UID(uid))
	}
	return out
}

// Free frees the memory of a pod whose containers have all ended.
func (m *Manager) Free(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	containers, ok := m.given[string(uid)]
	if !ok {
		return
	}
	for _, blocks := range containers {
		for _, b := range blocks {
			m.nodes.takeBack(b.NUMAAffinity, b.Type, b.Size)
		}
	}
	delete(m.given, string(uid))
	m.save()
}
