// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// well reports whether a device is healthy. A device that is not in the plugin's last list counts
// as healthy, for example because no plugin has registered since the kubelet started.
func (o *offer) well(id string) bool {
	if o == nil {
		return true
	}
	d, known := o.devices[id]
	return !known || d.healthy && o.plugin != nil
}

// Health returns the health of a container's devices in the form of the pod's status.
func (m *Manager) Health(uid types.UID, container string) []v1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	grants := m.given[uid][container]
	var out []v1.ResourceStatus
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		s := v1.ResourceStatus{Name: v1.ResourceName(name), Resources: []v1.ResourceHealth{}}
		for _, id := range slices.Sorted(slices.Values(grants[name].Devices)) {
			h := v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: v1.ResourceHealthStatusUnhealthy}
			if m.resources[name].well(id) {
				h.Health = v1.ResourceHealthStatusHealthy
			}
			s.Resources = append(s.Resources, h)
		}
		out = append(out, s)
	}
	return out
}

// condition returns the unhealthy devices of a resource that are assigned to pods, by pod. The
// caller holds the lock.
func (m *Manager) condition(name string) map[types.UID][]string {
	out := map[types.UID][]string{}
	for uid, containers := range m.given {
		for _, grants := range containers {
			if g := grants[name]; g != nil {
				out[uid] = append(out[uid], slices.DeleteFunc(slices.Clone(g.Devices), m.resources[name].well)...)
			}
		}
		slices.Sort(out[uid])
	}
	return out
}

// notifyUsers calls Affected for each pod whose devices of this resource changed their health. The
// argument before is the result of condition before the change. The caller holds the lock.
func (m *Manager) notifyUsers(name string, before map[types.UID][]string) {
	for uid, now := range m.condition(name) {
		if !slices.Equal(now, before[uid]) {
			m.cfg.Affected(uid)
		}
	}
}
