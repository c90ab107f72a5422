// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// enforce sets the limits of the cgroups of the system and of Kubernetes.
func (m *Manager) enforce() error {
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Others)) {
		// The operator must have created the cgroup and moved the system's processes into it. If
		// the kubelet created the cgroup, it would be empty and limit nothing.
		path := m.reserved(name)
		if !m.exists(path) {
			return fmt.Errorf("cgroup %s does not exist, so its reservation cannot be enforced", name)
		}
		if err := m.change(path, m.cfg.Others[name]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) exists(name string) bool {
	for _, root := range m.roots {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			return true
		}
	}
	return false
}

// Share sets the CPU weight and the memory protection of the QoS classes to what the given pods
// request together. The caller leaves out pods that have ended. The Burstable class gets as many
// CPU shares as its pods request, so that they do not take CPU time from Guaranteed pods.
func (m *Manager) Share(pods []*v1.Pod) error {
	var milli, least, low int64
	for _, pod := range pods {
		requests := helpers.PodRequests(pod, helpers.PodResourcesOptions{})
		class := qos.Class(pod)
		if class == v1.PodQOSBurstable {
			milli += requests.Cpu().MilliValue()
		}
		podLeast, podLow := m.cfg.Node.Protection.Reserved(class, requests.Memory().Value())
		least, low = least+podLeast, low+podLow
	}
	share := shared{m.path("burstable"), "cpu", "cpu.shares", "CPUShares", qos.Shares(milli)}
	if m.unified {
		share = shared{share.path, "", "cpu.weight", "CPUWeight", Weight(share.value)}
	}
	list := []shared{share}
	if m.unified {
		// The kernel protects the memory of a cgroup only up to the protection of its parent. If
		// the configuration does not protect memory (memoryReservationPolicy), the values are 0,
		// which removes the protection that an earlier kubelet has set.
		list = append(list,
			shared{m.path(), "", "memory.min", "MemoryMin", least},
			shared{m.path(), "", "memory.low", "MemoryLow", low},
			shared{m.path("burstable"), "", "memory.low", "MemoryLow", low})
	}
	for _, s := range list {
		if err := m.rewrite(s); err != nil {
			return err
		}
	}
	return nil
}

// shared is a value of a QoS class's cgroup: the kernel's file, systemd's property and the value.
type shared struct {
	path, controller, file, property string
	value                            int64
}

// rewrite writes a value, unless it is the value that rewrite wrote last.
func (m *Manager) rewrite(s shared) error {
	key := s.path + "/" + s.file
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.shared[key]; ok && last == s.value {
		return nil
	}
	if driver := m.slices.Load(); driver != nil {
		if err := driver.set(unit(s.path), []systemd.Property{property(s.property, uint64(s.value))}); err != nil {
			return err
		}
	}
	if err := m.write(s.controller, s.path, s.file, strconv.FormatInt(s.value, 10)); err != nil {
		return fmt.Errorf("cgroup %s: %s: %w", s.path, s.file, err)
	}
	m.shared[key] = s.value
	return nil
}
