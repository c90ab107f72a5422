// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

// CPUManagerCheckpoint is the content of the file with the assignments. The type must have the name
// that it has in Kubernetes, because the checksum depends on the name.
type CPUManagerCheckpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

// load reads the assignments from the file and checks that they match the configuration and the
// machine.
func (m *Manager) load() error {
	s := CPUManagerCheckpoint{}
	found, err := checkpoint.Read(m.cfg.File, &s)
	if err == nil && found {
		err = m.restore(s)
	}
	if err != nil {
		return fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete "+
			"the CPU manager checkpoint file %q before restarting Kubelet", err, m.cfg.File)
	}
	return m.write()
}

func (m *Manager) restore(s CPUManagerCheckpoint) error {
	if s.PolicyName != m.cfg.Policy {
		return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", m.cfg.Policy, s.PolicyName)
	}
	shared, err := cpuset.Parse(s.DefaultCPUSet)
	if err != nil {
		return fmt.Errorf("could not parse default cpu set %q: %w", s.DefaultCPUSet, err)
	}
	for uid, containers := range s.Entries {
		m.given[types.UID(uid)] = map[string]cpuset.CPUSet{}
		for name, text := range containers {
			set, err := cpuset.Parse(text)
			if err != nil {
				return fmt.Errorf("could not parse cpuset %q for container %q in pod %q: %w", text, name, uid, err)
			}
			m.given[types.UID(uid)][name] = set
		}
	}
	if m.Static() {
		return m.consistent(shared)
	}
	return nil
}

// consistent checks that the shared CPUs in the file are exactly the CPUs that no container owns.
func (m *Manager) consistent(shared cpuset.CPUSet) error {
	if shared.IsEmpty() {
		// Without the option StrictReserved, the shared CPUs include the reserved CPUs, so they
		// cannot be empty.
		if len(m.given) > 0 && !m.cfg.Options.StrictReserved {
			return errors.New("default cpuset cannot be empty")
		}
		return nil
	}
	switch both := m.reserved.Intersection(shared); {
	case m.cfg.Options.StrictReserved && !both.IsEmpty():
		return fmt.Errorf("some of strictly reserved cpus: %q are present in defaultCpuSet: %q", both, shared)
	case !m.cfg.Options.StrictReserved && !both.Equals(m.reserved):
		return fmt.Errorf("not all reserved cpus: %q are present in defaultCpuSet: %q", m.reserved, shared)
	}
	for uid, containers := range m.given {
		for name, set := range containers {
			if !shared.Intersection(set).IsEmpty() {
				return fmt.Errorf("pod: %s, container: %s cpuset: %q overlaps with default cpuset %q", uid, name, set, shared)
			}
		}
	}
	machine := m.cfg.Layout.All()
	if m.cfg.Options.StrictReserved {
		machine = machine.Difference(m.reserved)
	}
	if known := shared.Union(m.exclusive()); !known.Equals(machine) {
		return fmt.Errorf("current set of available CPUs %q doesn't match with CPUs in state %q", machine, known)
	}
	return nil
}

// write writes the assignments to the file. The caller holds the lock.
func (m *Manager) write() error {
	s := CPUManagerCheckpoint{PolicyName: m.cfg.Policy, Entries: map[string]map[string]string{}}
	if m.Static() {
		s.DefaultCPUSet = m.shared().String()
	}
	for uid, containers := range m.given {
		s.Entries[string(uid)] = map[string]string{}
		for name, set := range containers {
			s.Entries[string(uid)][name] = set.String()
		}
	}
	s.Checksum = checkpoint.Sum(&s)
	return checkpoint.WriteDurably(m.cfg.File, s)
}

// save writes the assignments to the file and logs a failure. The next change then writes them
// again. The caller holds the lock.
func (m *Manager) save() {
	if err := m.write(); err != nil {
		m.cfg.Log.Warn("Failed to write the record of CPUs assigned to containers", "err", err)
	}
}
