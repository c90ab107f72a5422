// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	format       = 1
	manifestName = "manifest.json"
	// StoreName is the name of the snapshot of the store in a backup.
	StoreName = "store.db"
)

// Limits of what a reader accepts.
const (
	maxManifest = 4 << 20
	maxFiles    = 10_000
	maxAll      = 64 << 20 // of all files except the store together
	maxStore    = 64 << 30
)

// Manifest describes a backup.
type Manifest struct {
	// Format is the version of the file's format.
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	// Node is the name of the machine's node on which the backup was made, and Release the version of
	// its programs.
	Node    string    `json:"node"`
	Release string    `json:"release"`
	Time    time.Time `json:"time"`
	// Revision and Epoch are those of the store.
	Revision int64 `json:"revision"`
	Epoch    int64 `json:"epoch,omitempty"`
	// Files has the other files in the backup, in order. The first one is the store.
	Files []Entry `json:"files"`
}

// Entry describes a file in a backup. Name is its path without the leading slash.
type Entry struct {
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"`
}

var (
	// ErrDamaged is returned for a backup that was cut off or changed, or that is none.
	ErrDamaged = errors.New("the backup is damaged")
	errFormat  = errors.New("a later version of Keelson has made the backup: use that version")
)

// decodeManifest decodes and validates a manifest.
func decodeManifest(data []byte) (*Manifest, error) {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	if version.Format > format {
		return nil, fmt.Errorf("%w (format %d)", errFormat, version.Format)
	}
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	return m, nil
}

var errManifest = errors.New("invalid")

func (m *Manifest) validate() error {
	if m.Format != format || m.Cluster == "" || m.Time.IsZero() || m.Revision < 1 || m.Epoch < 0 {
		return errManifest
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles || m.Files[0].Name != StoreName {
		return fmt.Errorf("files: %w", errManifest)
	}
	seen := map[string]bool{manifestName: true}
	left := int64(maxAll)
	for _, e := range m.Files {
		limit := left
		if e.Name == StoreName {
			limit = maxStore
		}
		sum, err := hex.DecodeString(e.SHA256)
		if seen[e.Name] || !filepath.IsLocal(e.Name) || filepath.Clean(e.Name) != e.Name || e.Mode != e.Mode.Perm() ||
			e.Size < 0 || e.Size > limit || err != nil || len(sum) != 32 {
			return fmt.Errorf("file %q: %w", e.Name, errManifest)
		}
		seen[e.Name] = true
		if e.Name != StoreName {
			left -= e.Size
		}
	}
	return nil
}
