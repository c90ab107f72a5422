// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

const (
	fileName    = "kubelet_internal_checkpoint"
	fileVersion = 1
)

// state is the content of the file that stores the assignments.
type state struct {
	Version   int                                        `json:"version"`
	Resources []string                                   `json:"resources"`
	Pods      map[types.UID]map[string]map[string]*grant `json:"pods"`
}

func (m *Manager) path() string { return filepath.Join(m.cfg.Dir, fileName) }

// load reads the assignments from the file. If the file is missing or invalid, there are none.
func (m *Manager) load() {
	s := state{}
	if _, err := checkpoint.Read(m.path(), &s); err != nil {
		m.cfg.Log.Warn("Failed to read the record of devices assigned to containers", "err", err)
	}
	if s.Version != fileVersion || s.Pods == nil {
		s = state{Pods: map[types.UID]map[string]map[string]*grant{}}
	}
	m.given = s.Pods
	for _, name := range s.Resources {
		m.resources[name] = &offer{since: m.cfg.Clock.Now(), devices: map[string]device{}}
	}
}

// save writes the assignments to the file and logs a failure. The next change then writes them
// again. The caller holds the lock.
func (m *Manager) save() {
	s := state{Version: fileVersion, Pods: m.given}
	for name := range m.resources {
		s.Resources = append(s.Resources, name)
	}
	if err := checkpoint.WriteDurably(m.path(), s); err != nil {
		m.cfg.Log.Warn("Failed to write the record of devices assigned to containers", "err", err)
	}
}
