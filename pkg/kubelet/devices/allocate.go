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
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Allocate gives the pod's containers the devices that they ask for. It asks the
// plugins, and gives nothing if one of them refuses. A container that has its
// devices keeps them.
func (m *Manager) Allocate(ctx context.Context, pod *v1.Pod) error {
	m.allocating.Lock() // plugins are asked meanwhile, and may take their time
	defer m.allocating.Unlock()
	reusable := map[string][]string{} // by resource, of init containers that will be over
	fresh := map[string]map[string]*grant{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		if err := m.allocate(ctx, pod, c, reusable, fresh, !sidecar); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := m.allocate(ctx, pod, &pod.Spec.Containers[i], reusable, fresh, false); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.given[pod.UID] == nil {
		m.given[pod.UID] = map[string]map[string]*grant{}
	}
	for container, grants := range fresh {
		if m.given[pod.UID][container] == nil {
			m.given[pod.UID][container] = map[string]*grant{}
		}
		maps.Copy(m.given[pod.UID][container], grants)
	}
	m.save()
	return nil
}

// snapshot is what is known of a resource, and what a container has of it.
func (m *Manager) snapshot(pod *v1.Pod, container, name string) (p *plugin, healthy map[string]bool, g *grant, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.resources[name]
	if o == nil {
		return nil, nil, nil, false
	}
	return o.plugin, o.healthy(), m.given[pod.UID][container][name], true
}

// allocate chooses and gets the devices of one container. What it leaves to others is added to reusable.
func (m *Manager) allocate(ctx context.Context, pod *v1.Pod, c *v1.Container, reusable map[string][]string, fresh map[string]map[string]*grant, leaves bool) error {
	for _, key := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		name, count := string(key), c.Resources.Limits[key]
		p, healthy, g, known := m.snapshot(pod, c.Name, name)
		if !known || count.Value() <= 0 {
			continue
		}
		if g == nil {
			ids, err := m.choose(ctx, name, p, healthy, int(count.Value()), reusable[name], fresh)
			if err != nil {
				return err
			}
			if g, err = p.allocate(ctx, ids); err != nil {
				return err
			}
			if fresh[c.Name] == nil {
				fresh[c.Name] = map[string]*grant{}
			}
			fresh[c.Name][name] = g
		}
		reusable[name] = slices.DeleteFunc(reusable[name], func(id string) bool { return slices.Contains(g.Devices, id) })
		if leaves {
			reusable[name] = append(reusable[name], g.Devices...)
		}
	}
	return nil
}

// allocate asks the plugin how a container gets at devices.
func (p *plugin) allocate(ctx context.Context, ids []string) (*grant, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := p.client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(r.GetContainerResponses()) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %v", r)
	}
	return &grant{Devices: ids, Response: r.GetContainerResponses()[0]}, nil
}

// choose takes devices: those that an init container leaves, those that the plugin prefers, and then any.
func (m *Manager) choose(ctx context.Context, name string, p *plugin, healthy map[string]bool, count int, reusable []string, fresh map[string]map[string]*grant) ([]string, error) {
	if len(healthy) == 0 {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	for _, id := range reusable {
		if !healthy[id] {
			return nil, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
		}
	}
	chosen := slices.Sorted(slices.Values(reusable))
	chosen = chosen[:min(len(chosen), count)]
	if len(chosen) == count {
		return chosen, nil
	}
	free := m.free(name, healthy, fresh)
	if needed := count - len(chosen); len(free) < needed {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, needed, len(free))
	}
	preferred, err := prefer(ctx, p, append(slices.Clone(chosen), free...), chosen, count)
	if err != nil {
		return nil, err
	}
	for _, id := range append(preferred, free...) {
		if len(chosen) < count && !slices.Contains(chosen, id) && slices.Contains(free, id) {
			chosen = append(chosen, id)
		}
	}
	return chosen, nil
}

// free are the healthy devices that nobody has, in order.
func (m *Manager) free(name string, healthy map[string]bool, fresh map[string]map[string]*grant) []string {
	out := maps.Clone(healthy)
	take := func(containers map[string]map[string]*grant) {
		for _, grants := range containers {
			if g := grants[name]; g != nil {
				for _, id := range g.Devices {
					delete(out, id)
				}
			}
		}
	}
	take(fresh)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, containers := range m.given {
		take(containers)
	}
	return slices.Sorted(maps.Keys(out))
}

// prefer asks a plugin that has preferences for them.
func prefer(ctx context.Context, p *plugin, available, must []string, count int) ([]string, error) {
	if !p.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := p.client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{{
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

// Container returns how a container that is about to start gets at its devices,
// by resource. Plugins that want to know of the start are told.
func (m *Manager) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]*api.ContainerAllocateResponse, error) {
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
