// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
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

// readFile reads what pods were given; a file that is not there, or that a crash of the machine left in pieces, is empty.
func readFile(path string) (map[types.UID]*given, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := state{}
	if json.Unmarshal(b, &s) != nil || s.Version != fileVersion || s.Pods == nil {
		return map[types.UID]*given{}, nil
	}
	return s.Pods, nil
}

// writeFile replaces the file as a whole.
func writeFile(path string, pods map[types.UID]*given) error {
	b, err := json.Marshal(state{Version: fileVersion, Pods: pods})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, b, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
