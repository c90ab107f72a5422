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

	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// enforce writes what all pods together may have, and what the system's own cgroups may.
func (m *Manager) enforce() error {
	if m.cfg.Pods != nil {
		if err := m.apply(m.path(), *m.cfg.Pods); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Others)) {
		// Somebody else made it and put processes into it: an empty one of ours would reserve nothing.
		if !m.exists(name) {
			return fmt.Errorf("cgroup %s does not exist, and its reservation is to be enforced", name)
		}
		if err := m.apply(name, m.cfg.Others[name]); err != nil {
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

// Share gives each class what its pods, those of the node that have not ended, ask for together: Burstable pods as many shares of the CPUs as they
// request, so that Guaranteed pods beside them have theirs.
func (m *Manager) Share(pods []*v1.Pod) error {
	if m.cfg.Systemd {
		return nil
	}
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
	shares := qos.Shares(milli)
	if err := m.rewrite("cpu", m.path("burstable"), map[bool]string{true: "cpu.weight", false: "cpu.shares"}[m.unified], m.weight(shares)); err != nil {
		return err
	}
	if !m.unified || !m.cfg.Node.Protection.Reserve {
		return nil
	}
	// The kernel protects what is below a cgroup only as far as the cgroup itself is protected.
	for _, f := range []struct {
		path, file string
		value      int64
	}{{m.path(), "memory.min", least}, {m.path(), "memory.low", low}, {m.path("burstable"), "memory.low", low}} {
		if err := m.rewrite("", f.path, f.file, strconv.FormatInt(f.value, 10)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) weight(shares int64) string {
	if m.unified {
		shares = Weight(shares)
	}
	return strconv.FormatInt(shares, 10)
}

// rewrite writes a value unless it is what was written last.
func (m *Manager) rewrite(controller, path, file, value string) error {
	if m.unified {
		controller = ""
	}
	key := path + "/" + file
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared[key] == value {
		return nil
	}
	if err := m.write(controller, path, file, value); err != nil {
		return fmt.Errorf("cgroup %s: %s: %w", path, file, err)
	}
	m.shared[key] = value
	return nil
}
