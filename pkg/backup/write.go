// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Extension is the ending of the names of backups.
const Extension = ".keelson-backup"

// timeLayout is the form of the time in the names of backups. Names sort by time.
const timeLayout = "20060102T150405Z"

// File is a file for a backup.
type File struct {
	Name string // its path without the leading slash
	Mode fs.FileMode
	Data []byte
}

// Name returns the name of the file with a backup.
func Name(cluster string, at time.Time) string {
	return cluster + "-" + at.UTC().Format(timeLayout) + Extension
}

// Write writes a backup to the directory dir, and returns its path. m has all fields except Format and
// Files. store is the snapshot of the store. The file can be opened by each of the recipients.
func Write(dir string, m *Manifest, store io.ReadSeeker, files []File, to ...age.Recipient) (string, error) {
	if err := m.describe(store, files); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("directory: %w", err)
	}
	path := filepath.Join(dir, Name(m.Cluster, m.Time))
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	partial, err := os.CreateTemp(dir, ".partial-*"+Extension)
	if err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	defer os.Remove(partial.Name()) //nolint:errcheck // it does not exist any more if all went well
	err = m.write(partial, store, files, to)
	if err = errors.Join(err, partial.Sync(), partial.Close()); err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	if err := os.Rename(partial.Name(), path); err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	return path, atomicfile.SyncDir(dir)
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
