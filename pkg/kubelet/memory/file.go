// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"fmt"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

// MemoryManagerCheckpoint is the content of the file. It has the name of Kubernetes' type, because
// the checksum depends on it.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     checkpoint.Checksum        `json:"checksum"`
}

// load reads the assignments from the file and checks that they fit the configuration and the
// machine.
func (m *Manager) load() error {
	s := MemoryManagerCheckpoint{}
	found, err := checkpoint.Read(m.cfg.File, &s)
	if err == nil && found {
		err = m.restore(s)
	}
	if err != nil {
		return fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete "+
			"the memory manager checkpoint file %q before restarting Kubelet", err, m.cfg.File)
	}
	return m.write()
}

func (m *Manager) restore(s MemoryManagerCheckpoint) error {
	if s.PolicyName != m.cfg.Policy {
		return fmt.Errorf("[memorymanager] configured policy %q differs from state checkpoint policy %q",
			m.cfg.Policy, s.PolicyName)
	}
	if !m.Static() {
		return nil
	}
	if len(s.MachineState) == 0 {
		if len(s.Entries) > 0 {
			return errors.New("[memorymanager] machine state can not be empty when it has memory assignments")
		}
		return nil
	}
	for uid, containers := range s.Entries {
		for name, blocks := range containers {
			for _, b := range blocks {
				for _, id := range b.NUMAAffinity {
					if m.nodes[id] == nil {
						return fmt.Errorf("[memorymanager] (pod: %s, container: %s) the memory assignment "+
							"uses the NUMA that does not exist", uid, name)
					}
				}
				m.nodes.give(b.NUMAAffinity, b.Type, b.Size)
			}
		}
		m.given[uid] = containers
	}
	if !m.nodes.fits(s.MachineState) {
		return errors.New("[memorymanager] the expected machine state is different from the real one")
	}
	return nil
}

// write writes the file. The caller holds m.mu.
func (m *Manager) write() error {
	s := MemoryManagerCheckpoint{PolicyName: m.cfg.Policy, MachineState: NUMANodeMap{}, Entries: m.given}
	if m.Static() {
		s.MachineState = m.nodes
	}
	s.Checksum = checkpoint.Sum(&s)
	return checkpoint.WriteDurably(m.cfg.File, s)
}

// save writes the file and logs an error. The next change writes the whole file again. The caller
// holds m.mu.
func (m *Manager) save() {
	if err := m.write(); err != nil {
		m.cfg.Log.Warn("Failed to write the record of memory assigned to containers", "err", err)
	}
}
