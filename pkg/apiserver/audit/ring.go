// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ringFiles is the number of files in a full ring (the files of audit events that wait for
// delivery).
const ringFiles = 16

// ring stores lines in files, first in, first out. When the files exceed max bytes together, the
// oldest file is deleted. It is not safe for concurrent use.
type ring struct {
	dir   string
	max   int64
	files []*ringFile // oldest file first
	open  *os.File    // the last file, while it accepts lines
	size  int64
	next  int
}

type ringFile struct {
	path  string
	size  int64
	lines int

	done   int    // number of events at the start of the file that have been delivered
	failed int    // number of failed deliveries of the batch after them
	taken  uint64 // value of queue.taken at the first of these failures
}

// newRing returns a ring (a bounded list of files of waiting audit events) with the files that a
// former process left in dir. It writes nothing.
func newRing(dir string, maxBytes int64) *ring {
	r := &ring{dir: dir, max: maxBytes}
	entries, err := os.ReadDir(dir)
	if err != nil || maxBytes == 0 {
		return r
	}
	for _, e := range entries { // ReadDir returns the entries in the order of their names
		n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ringSuffix))
		if err != nil || !strings.HasSuffix(e.Name(), ringSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		r.files = append(r.files, &ringFile{path: path, size: int64(len(data)), lines: bytes.Count(data, []byte("\n"))})
		r.size, r.next = r.size+int64(len(data)), n+1
	}
	return r
}

const ringSuffix = ".json"

func (r *ring) empty() bool { return len(r.files) == 0 }

var errNoRing = errors.New("event is too large for the limit on waiting events on disk")

// add appends lines, which end in a newline. dropped is the number of older lines that
// were deleted to make room.
func (r *ring) add(lines ...[]byte) (dropped int, err error) {
	for _, l := range lines {
		if int64(len(l)) > r.max/ringFiles {
			return dropped, errNoRing
		}
		if err := r.room(int64(len(l))); err != nil {
			return dropped, err
		}
		if _, err := r.open.Write(l); err != nil {
			return dropped, fmt.Errorf("audit ring: %w", errors.Join(err, r.close()))
		}
		last := r.files[len(r.files)-1]
		last.size, last.lines, r.size = last.size+int64(len(l)), last.lines+1, r.size+int64(len(l))
		for r.size > r.max {
			dropped += r.files[0].lines
			if err := r.remove(r.files[0]); err != nil {
				return dropped, err
			}
		}
	}
	return dropped, nil
}

// room opens a new file of the ring if the current one has no room for n bytes.
func (r *ring) room(n int64) error {
	if r.open != nil && r.files[len(r.files)-1].size+n <= r.max/ringFiles {
		return nil
	}
	if err := r.close(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("audit ring: %w", err)
	}
	path := filepath.Join(r.dir, fmt.Sprintf("%012d%s", r.next, ringSuffix))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit ring: %w", err)
	}
	r.open, r.next = f, r.next+1
	r.files = append(r.files, &ringFile{path: path})
	return nil
}

func (r *ring) close() error {
	f := r.open
	if f == nil {
		return nil
	}
	r.open = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("audit ring: %w", err)
	}
	return nil
}

// oldest returns the oldest file of the ring and its lines, which are audit events. No more lines
// are added to the file.
func (r *ring) oldest() (*ringFile, [][]byte, error) {
	if len(r.files) == 0 {
		return nil, nil, nil
	}
	if len(r.files) == 1 {
		if err := r.close(); err != nil {
			return nil, nil, err
		}
	}
	f := r.files[0]
	data, err := os.ReadFile(f.path)
	if err != nil {
		return f, nil, fmt.Errorf("audit ring: %w", err)
	}
	return f, slices.Collect(bytes.Lines(data)), nil
}

// postpone makes f the newest file of the ring, so that its events are delivered last. No more
// lines are added to it.
func (r *ring) postpone(f *ringFile) error {
	i := slices.Index(r.files, f)
	if i < 0 || i == len(r.files)-1 {
		return nil
	}
	if err := r.close(); err != nil {
		return err
	}
	r.files = append(slices.Delete(r.files, i, i+1), f)
	return nil
}

// remove deletes the file f of the ring, with its events. It returns no error if the file does not
// exist.
func (r *ring) remove(f *ringFile) error {
	i := slices.Index(r.files, f)
	if i < 0 {
		return nil
	}
	if i == len(r.files)-1 {
		if err := r.close(); err != nil {
			return err
		}
	}
	r.files = slices.Delete(r.files, i, i+1)
	r.size -= f.size
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("audit ring: %w", err)
	}
	return nil
}
