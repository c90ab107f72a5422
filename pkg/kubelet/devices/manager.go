// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/numa"
)

// graceWithoutPlugin is how long a resource stays in the Node's status after its plugin has ended.
const graceWithoutPlugin = 5 * time.Minute

// Config holds a Manager's settings.
type Config struct {
	// Dir is the directory of the sockets of the kubelet and of plugins, and of the file with the
	// assignments.
	Dir   string
	Clock clock.Clock
	Log   *slog.Logger
	// Nodes are the IDs of the machine's NUMA nodes.
	Nodes []int
	// Changed is called when the devices of the node have changed. It must not block.
	Changed func()
	// Affected is called for each pod whose devices have changed their health. It must not block.
	Affected func(pod types.UID)
}

// Manager assigns the devices of device plugins to containers. It is safe for concurrent use.
type Manager struct {
	cfg        Config
	allocating sync.Mutex // held during an allocation; locked before mu

	mu        sync.Mutex
	registry  *registry // nil until Run has started
	resources map[string]*offer
	given     map[types.UID]map[string]map[string]*grant // assigned devices, by pod, container and resource
	dropped   map[string]bool                            // resources that must be removed from the Node's status
}

// offer is an extended resource with its devices and the plugin that offers it.
type offer struct {
	plugin  *plugin   // nil while no plugin is registered
	since   time.Time // when the last plugin ended
	devices map[string]device
}

// device is one device of a resource.
type device struct {
	healthy bool
	nodes   numa.Mask // NUMA nodes to which the device is close; empty if the plugin reports none
}

// grant is the assignment of devices of one resource to one container.
type grant struct {
	Devices  []string                       `json:"devices"`
	Response *api.ContainerAllocateResponse `json:"response,omitempty"`
}

// NewManager returns a Manager that starts with the assignments stored in the file.
func NewManager(cfg Config) *Manager {
	m := &Manager{cfg: cfg, resources: map[string]*offer{}, dropped: map[string]bool{}}
	m.load()
	return m
}

// Resources returns the extended resources of the node for the Node's status. The result gone are
// the names of resources that the node no longer has.
func (m *Manager) Resources() (capacity, allocatable v1.ResourceList, gone []v1.ResourceName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, o := range m.resources {
		if o.plugin == nil && m.cfg.Clock.Since(o.since) > graceWithoutPlugin {
			delete(m.resources, name)
			m.dropped[name] = true
			m.save()
			continue
		}
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(len(o.devices)), resource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(len(o.healthy())), resource.DecimalSI)
	}
	for name := range m.dropped {
		gone = append(gone, v1.ResourceName(name))
	}
	return capacity, allocatable, gone
}

// healthy returns the IDs of the devices that can be assigned.
func (o *offer) healthy() map[string]bool {
	out := map[string]bool{}
	for id, d := range o.devices {
		if d.healthy && o.plugin != nil {
			out[id] = true
		}
	}
	return out
}

// connected records p as the plugin of a resource. It closes the connection to the previous plugin.
func (m *Manager) connected(name string, p *plugin) {
	m.mu.Lock()
	o := m.resources[name]
	if o == nil {
		o = &offer{devices: map[string]device{}}
		m.resources[name] = o
	}
	old, before := o.plugin, m.condition(name)
	o.plugin = p
	delete(m.dropped, name)
	m.notifyUsers(name, before)
	m.save()
	m.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// listed records the devices that a plugin has reported.
func (m *Manager) listed(name string, p *plugin, list []*api.Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.resources[name]
	if o == nil || o.plugin != p {
		return // another plugin has replaced p
	}
	before := m.condition(name)
	o.devices = map[string]device{} // a new map, because an allocation may still be reading the old one
	for _, d := range list {
		var nodes numa.Mask
		for _, n := range d.GetTopology().GetNodes() {
			nodes |= numa.MaskOf(int(n.GetID()))
		}
		o.devices[d.GetID()] = device{healthy: d.GetHealth() == api.Healthy, nodes: nodes}
	}
	m.notifyUsers(name, before)
	m.cfg.Changed()
}

// disconnected records that the connection to a plugin has ended.
func (m *Manager) disconnected(name string, p *plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.resources[name]
	if o == nil || o.plugin != p {
		return
	}
	before := m.condition(name)
	o.plugin, o.since = nil, m.cfg.Clock.Now()
	m.notifyUsers(name, before)
	m.cfg.Changed()
}

// Assigned returns the devices that are assigned to a container. The keys are the resource and the
// device ID; the values are NUMA nodes.
func (m *Manager) Assigned(uid types.UID, container string) map[string]map[string]numa.Mask {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]map[string]numa.Mask{}
	for name, g := range m.given[uid][container] {
		out[name] = map[string]numa.Mask{}
		for _, id := range g.Devices {
			if o := m.resources[name]; o != nil {
				out[name][id] = o.devices[id].nodes
			} else {
				out[name][id] = 0
			}
		}
	}
	return out
}

// Allocatable returns the healthy devices. The keys are the resource and the device ID; the values
// are NUMA nodes.
func (m *Manager) Allocatable() map[string]map[string]numa.Mask {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]map[string]numa.Mask{}
	for name, o := range m.resources {
		out[name] = map[string]numa.Mask{}
		for id := range o.healthy() {
			out[name][id] = o.devices[id].nodes
		}
	}
	return out
}

// Pods returns the UIDs of the pods that have devices.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.given))
}

// Free releases the devices of a pod whose containers have all ended.
func (m *Manager) Free(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.given[uid]; ok {
		delete(m.given, uid)
		m.save()
	}
}
