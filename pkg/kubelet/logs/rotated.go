// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// headSize is how many bytes at the beginning of two files are compared to decide whether they are
// the same log. The first line begins with its time, so equal beginnings mean the same log.
const headSize = 512

// next returns the new name for a log that is being rotated. The name ends in the time. The order
// of the names must be the order in which the files were written. So if the clock was set back,
// next uses a time 1 s after that of the newest renamed file.
func next(path string, names []string, now time.Time) string {
	at := now.Format(timeFormat)
	for _, n := range names {
		before, err := time.Parse(timeFormat, strings.TrimPrefix(plain(n), path+"."))
		if err != nil {
			continue // the kubelet did not create this file
		}
		if after := before.Add(time.Second).Format(timeFormat); after > at {
			at = after
		}
	}
	return path + "." + at
}

// plain returns the name that a renamed file had before it was compressed.
func plain(name string) string { return strings.TrimSuffix(name, compressed) }

// written returns the names of a log's renamed files, oldest first. For a compressed file it
// returns the name without the suffix of the compression.
func written(path string) ([]string, error) {
	names, err := renamed(path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		if !strings.HasSuffix(n, unfinished) {
			out = append(out, plain(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// open opens the log that is being written. older is the name of the newest renamed file.
func open(path string) (file *os.File, older string, err error) {
	for {
		before, err := written(path)
		if err != nil {
			return nil, "", err
		}
		file, err := Open(path)
		if err != nil {
			return nil, "", err
		}
		after, err := written(path)
		// The newest renamed file did not change while the log was opened, so the log was not
		// rotated in between, and older is the file that precedes it.
		if err == nil && last(before) == last(after) {
			return file, last(after), nil
		}
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, "", err
		}
	}
}

func last(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// between reads the files that were written after r.file and before the present log. older is the
// newest of these files. Files that were removed meanwhile are skipped.
func (r *reader) between(older string) error {
	names, err := written(r.path)
	if err != nil {
		return err
	}
	first := true
	for _, n := range names {
		if n <= r.older || n > older {
			continue
		}
		if err := r.renamed(n, first); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		first = false
	}
	return nil
}

// renamed reads a renamed file. If the argument first is true, the file may be r.file under its new
// name. If it is, renamed skips it, because r.file was read already.
func (r *reader) renamed(name string, first bool) error {
	in, err := openRenamed(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // an error of Close can be ignored: the file was only read
	var begins []byte
	if first {
		var mine []byte
		if mine, err = head(io.NewSectionReader(r.file, 0, headSize)); err == nil {
			begins, err = head(in)
		}
		if err != nil || bytes.Equal(begins, mine) {
			return err
		}
	}
	r.rest = nil
	if err := r.toEnd(io.MultiReader(bytes.NewReader(begins), in)); err != nil {
		return err
	}
	return r.line(r.rest)
}

// head reads the first headSize bytes of a file.
func head(in io.Reader) ([]byte, error) {
	out := make([]byte, headSize)
	n, err := io.ReadFull(in, out)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return out[:n], nil
}

// openRenamed opens a renamed file for reading, and decompresses it if it is compressed.
func openRenamed(name string) (io.ReadCloser, error) {
	f, err := Open(name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if f, err = Open(name + compressed); err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log %s: %w", name, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}
