// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

const (
	fileName    = "allocated_pods_state"
	fileVersion = 1
)

// state is the content of the file that stores the granted resources.
type state struct {
	Version int                  `json:"version"`
	Pods    map[types.UID]*given `json:"pods"`
}

func (m *Manager) path() string { return filepath.Join(m.cfg.Dir, fileName) }

// load reads the granted resources from the file. If the file is missing or invalid, pods are
// granted what they request.
func (m *Manager) load() {
	s := state{}
	if _, err := checkpoint.Read(m.path(), &s); err != nil {
		m.cfg.Log.Warn("Failed to read the record of resources allocated to pods", "err", err)
	}
	if s.Version != fileVersion || s.Pods == nil {
		s.Pods = map[types.UID]*given{}
	}
	m.given = s.Pods
}

// save writes the granted resources to the file. If that fails, the next change writes them again.
// If the kubelet restarts before then, running pods are granted what they request. The caller holds
// the lock.
func (m *Manager) save() {
	if err := checkpoint.Write(m.path(), state{Version: fileVersion, Pods: m.given}); err != nil {
		m.cfg.Log.Warn("Failed to write the record of resources allocated to pods", "err", err)
	}
}
