// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// Extension is the ending of the names of backups.
const Extension = ".keelson-backup"

const (
	// timeLayout is the form of the time in the names of backups. Names sort by time.
	timeLayout = "20060102T150405Z"
	// nodeMark is between the cluster and the node in the names of backups. Names of nodes do not have it.
	nodeMark = "_"
)

// File is a file for a backup.
type File struct {
	Name string // its path without the leading slash
	Mode fs.FileMode
	Data []byte
}

// Name returns the name of the file with a backup that was made on a node.
func Name(cluster, node string, at time.Time) string {
	return cluster + nodeMark + node + "-" + at.UTC().Format(timeLayout) + Extension
}

// Write writes a backup to a location, and returns its path. m has all fields except Format and Files. store is
// the snapshot of the store. The file can be opened by each of the recipients.
func Write(
	ctx context.Context, in Location, m *Manifest, store io.ReadSeeker, files []File, to ...age.Recipient,
) (string, error) {
	if err := m.describe(store, files); err != nil {
		return "", err
	}
	name := Name(m.Cluster, m.Node, m.Time)
	all, err := List(ctx, in)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	path := in.Path(name)
	if slices.ContainsFunc(all, func(l Listed) bool { return l.name == name }) {
		return "", fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	if err := in.Create(ctx, name, func(out io.Writer) error { return m.write(out, store, files, to) }); err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	return path, nil
}

// describe sets m.Format and m.Files.
func (m *Manifest) describe(store io.ReadSeeker, files []File) error {
	m.Format, m.Files = format, nil
	if _, err := store.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	h := sha256.New()
	size, err := io.Copy(h, store)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	m.Files = append(m.Files, Entry{Name: StoreName, Mode: 0o600, Size: size, SHA256: hex.EncodeToString(h.Sum(nil))})
	for _, f := range files {
		sum := sha256.Sum256(f.Data)
		m.Files = append(m.Files, Entry{Name: f.Name, Mode: f.Mode.Perm(), Size: int64(len(f.Data)),
			SHA256: hex.EncodeToString(sum[:])})
	}
	return m.validate()
}

func (m *Manifest) write(out io.Writer, store io.ReadSeeker, files []File, to []age.Recipient) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	sealed, err := age.Encrypt(out, to...)
	if err != nil {
		return err
	}
	packed, err := zstd.NewWriter(sealed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	if _, err := store.Seek(0, io.SeekStart); err != nil {
		return err
	}
	err = add(archive, Entry{Name: manifestName, Mode: 0o600, Size: int64(len(data))}, bytes.NewReader(data), m.Time)
	for i, e := range m.Files {
		content := io.Reader(store)
		if i > 0 {
			content = bytes.NewReader(files[i-1].Data)
		}
		err = errors.Join(err, add(archive, e, content, m.Time))
	}
	return errors.Join(err, archive.Close(), packed.Close(), sealed.Close())
}

func add(w *tar.Writer, e Entry, content io.Reader, at time.Time) error {
	err := w.WriteHeader(&tar.Header{Name: e.Name, Mode: int64(e.Mode), Size: e.Size, ModTime: at.Truncate(time.Second)})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}
