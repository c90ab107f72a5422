// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"keelson.dev/api/clock"
)

const (
	// statePeriod is how often Read checks whether the container of a followed log still runs.
	statePeriod = 5 * time.Second
	stampFormat = "2006-01-02T15:04:05.000000000Z07:00"
	tailBlock   = 4096
	// maxLine is the maximum length of a line. Runtimes split longer lines, by default at 16 KiB.
	maxLine = 16 << 20
)

// Options select what Read reads.
type Options struct {
	// Tail is the number of lines to read at the end; nil means all.
	Tail *int64
	// Limit is the maximum number of bytes.
	Limit *int64
	// Since excludes older lines.
	Since time.Time
	// Follow makes Read wait for new lines until Running reports that the container does not run.
	Follow  bool
	Running func(ctx context.Context) (bool, error)
	// Timestamps adds its time to each line.
	Timestamps bool
	// Stdout and Stderr receive the lines; a stream that is nil is left out.
	Stdout, Stderr io.Writer
	Clock          clock.Clock
}

// errEnough is the error with which reading ends when the limit is reached.
var errEnough = errors.New("limit reached")

// Read copies a container's log, which is in the format of the CRI. If the log is followed and
// rotated, Read continues in the new file.
func Read(ctx context.Context, path string, o Options) error {
	_, err := os.Lstat(path)
	if err != nil {
		// Kubernetes' text, which users see.
		return fmt.Errorf("failed to try resolving symlinks in path %q: %w", path, err)
	}
	r := &reader{Options: o, path: path, remain: math.MaxInt64, lines: -1, fresh: true}
	if o.Limit != nil {
		r.remain = *o.Limit
	}
	if o.Follow {
		// The watch begins before the first read, so that no change is missed.
		if r.changes, err = fsnotify.NewWatcher(); err != nil {
			return fmt.Errorf("failed to create fsnotify watcher: %w", err)
		}
		defer func() { _ = r.changes.Close() }()
		if err := r.changes.Add(filepath.Dir(path)); err != nil {
			return fmt.Errorf("failed to watch directory %q: %w", filepath.Dir(path), err)
		}
	}
	if r.file, r.older, err = open(path); err != nil {
		return fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	defer func() { _ = r.file.Close() }()
	if o.Tail != nil {
		if err := r.toTail(*o.Tail); err != nil {
			return fmt.Errorf("failed to tail %d lines of log file %q: %w", *o.Tail, path, err)
		}
	}
	if err := r.all(ctx); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// reader reads one log.
type reader struct {
	Options
	path    string
	changes *fsnotify.Watcher // watches the directory; nil if the log is not followed
	file    *os.File
	older   string // the newest renamed file that is older than file; "" if there is none
	rest    []byte // the beginning of an incomplete line
	remain  int64  // bytes still to be written
	lines   int64  // lines still to be read; negative for all
	fresh   bool   // true if the next message begins a line
}

// toTail seeks to the beginning of the last n lines. If the log is not followed it also limits
// reading to them.
func (r *reader) toTail(n int64) error {
	if !r.Follow {
		r.lines = n
	}
	at, err := r.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	block, count := make([]byte, tailBlock), int64(0)
	for at > 0 {
		size := min(at, tailBlock)
		if _, err := r.file.ReadAt(block[:size], at-size); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			if block[i] != '\n' {
				continue
			}
			if count++; count > n {
				_, err := r.file.Seek(at-size+i+1, io.SeekStart)
				return err
			}
		}
		at -= size
	}
	_, err = r.file.Seek(0, io.SeekStart)
	return err
}

// all reads the log to its end. A followed log ends with its container.
func (r *reader) all(ctx context.Context) error {
	if err := r.toEnd(r.file); err != nil {
		return err
	}
	if !r.Follow {
		return r.line(r.rest) // write the incomplete last line too
	}
	for {
		running, err := r.Running(ctx)
		if err != nil {
			return err
		}
		// Read again: everything that the container wrote before it ended is in the file now.
		if err := r.onward(); err != nil {
			return err
		}
		if !running {
			return nil
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// onward reads to the end of the file. If another file has the log's name by now, it also reads
// that file to its end.
func (r *reader) onward() error {
	for {
		next, older, err := open(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			return r.toEnd(r.file) // the file was renamed; the runtime will create a new one soon
		}
		if err != nil {
			return fmt.Errorf("failed to open log file %q: %w", r.path, err)
		}
		same, err := sameFile(r.file, next)
		// The runtime writes to a new file only once it exists, so the old file is complete.
		err = errors.Join(err, r.toEnd(r.file))
		if err == nil && !same {
			if err = r.line(r.rest); err == nil {
				err = r.between(older)
			}
		}
		if err != nil || same {
			return errors.Join(err, next.Close())
		}
		_ = r.file.Close() // an error of Close loses nothing, because the file was only read
		r.file, r.older, r.rest = next, older, nil
	}
}

func sameFile(a, b *os.File) (bool, error) {
	x, err := a.Stat()
	if err != nil {
		return false, err
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y), err
}

// wait returns when the log may have changed, or when it is time to check the container.
func (r *reader) wait(ctx context.Context) error {
	t := r.Clock.NewTimer(statePeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C():
			return nil
		case e := <-r.changes.Events:
			if filepath.Base(e.Name) != filepath.Base(r.path) {
				continue // the file belongs to another run of the container
			}
			// This event means only that there are new lines. The container is not checked before
			// the next statePeriod.
			if err := r.onward(); err != nil {
				return err
			}
		case err := <-r.changes.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch of the log: %w", err)
			}
			return nil // events may have been lost, so the file must be read
		}
	}
}

// toEnd reads all complete lines.
func (r *reader) toEnd(file io.Reader) error {
	in := bufio.NewReader(file)
	for {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("failed to read log file %q: %w", r.path, err)
		}
		if r.rest = append(r.rest, part...); len(r.rest) > maxLine {
			return fmt.Errorf("failed to read log file %q: a line has more than %d bytes", r.path, maxLine)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil
		}
		if err := r.line(r.rest); err != nil {
			return err
		}
		r.rest = r.rest[:0]
	}
}

// line writes the message in a line of the file. A line that cannot be parsed is skipped.
func (r *reader) line(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if r.lines == 0 {
		return errEnough
	}
	m, ok := parse(text)
	if !ok {
		return nil
	}
	if r.lines > 0 {
		r.lines--
	}
	beginning := r.fresh
	r.fresh = len(m.text) == 0 || m.text[len(m.text)-1] == '\n'
	out := r.Stdout
	if m.stderr {
		out = r.Stderr
	}
	if out == nil || m.time.Before(r.Since) {
		return nil
	}
	if r.Timestamps && beginning {
		m.text = append([]byte(m.time.Format(stampFormat)+" "), m.text...)
	}
	n, err := out.Write(m.text[:min(int64(len(m.text)), r.remain)])
	if err != nil {
		return err
	}
	if r.remain -= int64(n); r.remain <= 0 {
		return errEnough
	}
	return nil
}

// message is the parsed form of a line of the log.
type message struct {
	time   time.Time
	stderr bool
	text   []byte // includes the newline, if the line is complete
}

// parse parses a line such as "2016-10-06T00:17:09.669794202Z stdout P text". P means that the text
// is a part of a longer line that continues.
func parse(line []byte) (message, bool) {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) != 4 {
		return message{}, false
	}
	stamp, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	stream := string(parts[1])
	if err != nil || stream != "stdout" && stream != "stderr" {
		return message{}, false
	}
	text := parts[3]
	if tag, _, _ := bytes.Cut(parts[2], []byte(":")); string(tag) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	return message{time: stamp, stderr: stream == "stderr", text: text}, true
}
