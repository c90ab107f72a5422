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

// enforce writes the limits of the system's own cgroups.
func (m *Manager) enforce() error {
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Others)) {
		// The cgroup must exist with the system's processes in it; a new, empty cgroup would
		// reserve nothing.
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

// Share sets the CPU shares and memory protection of each class to what the given pods request
// together. Pods that have ended must not be among them. The class of Burstable pods gets as many
// CPU shares as its pods request, so that Guaranteed pods keep theirs.
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
	if m.unified && m.cfg.Node.Protection.Reserve {
		// The kernel protects the memory of a cgroup only as far as its parent is protected.
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

// shared is a value of a class's cgroup, with the name that the kernel and the name that systemd
// has for it.
type shared struct {
	path, controller, file, property string
	value                            int64
}

// rewrite writes a value unless it is the last one written.
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
