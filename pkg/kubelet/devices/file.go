// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"
)

const (
	fileName    = "kubelet_internal_checkpoint"
	fileVersion = 1
)

// state is the content of the file.
type state struct {
	Version   int                                        `json:"version"`
	Resources []string                                   `json:"resources"`
	Pods      map[types.UID]map[string]map[string]*grant `json:"pods"`
}

// readFile reads what is remembered; a file that is not there, or that is not ours, has nothing.
func readFile(path string) (state, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state{}, err
	}
	s := state{}
	if json.Unmarshal(b, &s) != nil || s.Version != fileVersion || s.Pods == nil {
		return state{Pods: map[types.UID]map[string]map[string]*grant{}}, nil
	}
	return s, nil
}

// writeFile replaces the file as a whole.
func writeFile(path string, s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, b, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
