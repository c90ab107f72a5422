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

// state is the content of the file.
type state struct {
	Version int                  `json:"version"`
	Pods    map[types.UID]*given `json:"pods"`
}

func (m *Manager) path() string { return filepath.Join(m.cfg.Dir, fileName) }

// load takes up what pods were given. A file that cannot be read as ours is as if there were
// none: pods get what they ask for then.
func (m *Manager) load() {
	s := state{}
	if _, err := checkpoint.Read(m.path(), &s); err != nil {
		m.cfg.Log.Warn("Failed to read allocated resources", "err", err)
	}
	if s.Version != fileVersion || s.Pods == nil {
		s.Pods = map[types.UID]*given{}
	}
	m.given = s.Pods
}

// save writes the file. What could not be written is written with the next change; until then a
// restart takes what pods ask for. The caller holds the lock.
func (m *Manager) save() {
	if err := checkpoint.Write(m.path(), state{Version: fileVersion, Pods: m.given}); err != nil {
		m.cfg.Log.Warn("Failed to save allocated resources", "err", err)
	}
}
