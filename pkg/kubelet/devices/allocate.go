// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/dra"
	"keelson.dev/keelson/pkg/kubelet/numa"
)

// Allocate implements numa.Provider. It assigns the devices that a container requests, of each
// resource. It stops at the first error of a plugin and assigns no devices of that resource. If the
// container already has devices of a resource, it keeps them.
func (m *Manager) Allocate(ctx context.Context, pod *v1.Pod, c *v1.Container, near numa.Hint) error {
	m.allocating.Lock() // held during calls to plugins, which may take long
	defer m.allocating.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		if dra.Serves(pod, c.Name, key) {
			continue
		}
		name, count := string(key), c.Resources.Limits[key]
		o := m.snapshot(pod, c.Name, name)
		if o == nil || count.Value() <= 0 || o.has != nil {
			continue
		}
		ids, err := o.choose(ctx, int(count.Value()), near.Nodes)
		if err != nil {
			return err
		}
		g, err := o.plugin.allocate(ctx, ids)
		if err != nil {
			return err
		}
		m.give(pod.UID, c.Name, name, g)
	}
	return nil
}

// give records the devices that a container has been assigned.
func (m *Manager) give(pod types.UID, container, name string, g *grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.given[pod] == nil {
		m.given[pod] = map[string]map[string]*grant{}
	}
	if m.given[pod][container] == nil {
		m.given[pod][container] = map[string]*grant{}
	}
	m.given[pod][container][name] = g
	m.save()
}

// stock describes the devices of a resource at the moment when a container requests some of them.
type stock struct {
	name    string
	plugin  *plugin
	devices map[string]device // all devices of the resource
	healthy map[string]bool
	has     *grant // devices that the container already has, or nil
	// reusable are the devices of init containers that the container can take over. free are the
	// healthy devices that are not assigned to any pod.
	reusable, free []string
}

// snapshot returns the current stock of a resource, or nil if no plugin has offered the resource.
func (m *Manager) snapshot(pod *v1.Pod, container, name string) *stock {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.resources[name]
	if o == nil {
		return nil
	}
	s := &stock{name: name, plugin: o.plugin, devices: o.devices, healthy: o.healthy(),
		has: m.given[pod.UID][container][name]}
	s.reusable = m.reusable(pod, name)
	s.free = m.free(name, s.healthy)
	return s
}

// reusable returns the devices of init containers that end before the pod's main containers start,
// sorted by ID. The caller holds the lock.
func (m *Manager) reusable(pod *v1.Pod, name string) []string {
	left := map[string]bool{}
	note := func(c *v1.Container, leaves bool) {
		if g := m.given[pod.UID][c.Name][name]; g != nil {
			for _, id := range g.Devices {
				left[id] = leaves
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		note(c, c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways)
	}
	for i := range pod.Spec.Containers {
		note(&pod.Spec.Containers[i], false)
	}
	maps.DeleteFunc(left, func(_ string, leaves bool) bool { return !leaves })
	return slices.Sorted(maps.Keys(left))
}

// allocate asks the plugin which settings a container needs to access the devices.
func (p *plugin) allocate(ctx context.Context, ids []string) (*grant, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := p.client.Allocate(ctx,
		&api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(r.GetContainerResponses()) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %v", r)
	}
	return &grant{Devices: ids, Response: r.GetContainerResponses()[0]}, nil
}

// choose chooses the devices for a container: first devices that it takes over from init
// containers, then devices on the NUMA nodes in near, then devices that the plugin prefers, and
// then any free devices.
func (s *stock) choose(ctx context.Context, count int, near numa.Mask) ([]string, error) {
	if len(s.healthy) == 0 {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", s.name)
	}
	for _, id := range s.reusable {
		if !s.healthy[id] {
			return nil, fmt.Errorf(
				"previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", s.name)
		}
	}
	chosen := slices.Clone(s.reusable[:min(len(s.reusable), count)])
	if len(chosen) == count {
		return chosen, nil
	}
	if needed := count - len(chosen); len(s.free) < needed {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			s.name, needed, len(s.free))
	}
	take := func(ids []string) {
		for _, id := range ids {
			if len(chosen) < count && !slices.Contains(chosen, id) && slices.Contains(s.free, id) {
				chosen = append(chosen, id)
			}
		}
	}
	must := slices.Clone(chosen)
	aligned := slices.DeleteFunc(slices.Clone(s.free), func(id string) bool { return s.devices[id].nodes&near == 0 })
	among := s.free
	if len(must)+len(aligned) > count {
		among = aligned // enough devices are on these nodes, so the plugin must choose among them
	} else {
		take(aligned)
		must = slices.Clone(chosen)
	}
	if len(chosen) < count {
		preferred, err := prefer(ctx, s.plugin, append(slices.Clone(must), among...), must, count)
		if err != nil {
			return nil, err
		}
		take(slices.DeleteFunc(preferred, func(id string) bool { return !slices.Contains(among, id) }))
	}
	take(aligned)
	// Now take devices on other NUMA nodes. Take devices without a NUMA node last, because they
	// suit every container.
	take(slices.DeleteFunc(slices.Clone(s.free), func(id string) bool { return near != 0 && s.devices[id].nodes == 0 }))
	take(s.free)
	return chosen, nil
}

// free returns those of the healthy devices that no pod has, sorted by ID. The caller holds the
// lock.
func (m *Manager) free(name string, healthy map[string]bool) []string {
	out := maps.Clone(healthy)
	for _, containers := range m.given {
		for _, grants := range containers {
			if g := grants[name]; g != nil {
				for _, id := range g.Devices {
					delete(out, id)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// prefer asks a plugin which of the available devices it prefers. The result is nil if the plugin
// does not support this call.
func prefer(ctx context.Context, p *plugin, available, must []string, count int) ([]string, error) {
	if !p.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := p.client.GetPreferredAllocation(ctx,
		&api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(count),
		}}})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(r.GetContainerResponses()) == 0 {
		return nil, nil
	}
	return r.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// Container returns the settings that a container needs to access its devices, such as environment
// variables, mounts and device nodes. The kubelet calls it before each start of the container. If a
// plugin requires it, Container also calls the plugin's PreStartContainer.
func (m *Manager) Container(ctx context.Context, pod *v1.Pod,
	c *v1.Container) ([]*api.ContainerAllocateResponse, error) {
	type start struct {
		plugin  *plugin
		devices []string
	}
	var out []*api.ContainerAllocateResponse
	var starts []start
	m.mu.Lock()
	grants := m.given[pod.UID][c.Name]
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		out = append(out, grants[name].Response)
		if o := m.resources[name]; o != nil && o.plugin != nil && o.plugin.options.GetPreStartRequired() {
			starts = append(starts, start{o.plugin, grants[name].Devices})
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, s := range starts {
		ctx, cancel := context.WithTimeout(ctx, callTimeout/2)
		_, err := s.plugin.client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: s.devices})
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err))
		}
	}
	return out, errors.Join(errs...)
}
