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
	// maxLine is the maximum length of a line in bytes. Runtimes split longer lines, by default at
	// 16 KiB.
	maxLine = 16 << 20
)

// Options say which parts of a log Read returns.
type Options struct {
	// Tail is the number of lines at the end of the log to read; nil means all lines.
	Tail *int64
	// Limit is the maximum number of bytes to write; nil means no limit.
	Limit *int64
	// Since excludes lines that were written before it.
	Since time.Time
	// With Follow, Read waits for new lines until Running returns false: the container has ended.
	Follow  bool
	Running func(ctx context.Context) (bool, error)
	// With Timestamps, Read writes the time of each line before the line.
	Timestamps bool
	// Stdout and Stderr receive the lines of the two streams. Lines of a stream that is nil are
	// left out.
	Stdout, Stderr io.Writer
	Clock          clock.Clock
}

// errEnough ends reading when the limit of bytes or lines has been reached.
var errEnough = errors.New("limit reached")

// Read copies a container's log, which is in the format of the CRI, to o.Stdout and o.Stderr. If
// the log is rotated while Read follows it, Read continues in the new file.
func Read(ctx context.Context, path string, o Options) error {
	_, err := os.Lstat(path)
	if err != nil {
		// Users see this message. Its wording is that of Kubernetes.
		return fmt.Errorf("failed to try resolving symlinks in path %q: %w", path, err)
	}
	r := &reader{Options: o, path: path, remain: math.MaxInt64, lines: -1, fresh: true}
	if o.Limit != nil {
		r.remain = *o.Limit
	}
	if o.Follow {
		// The watch starts before the first read, so that it reports every later change.
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

// reader is the state of one call of Read.
type reader struct {
	Options
	path    string
	changes *fsnotify.Watcher // watches the directory; nil if the log is not followed
	file    *os.File
	older   string // the newest renamed file that is older than file; "" if there is none
	rest    []byte // the part of an incomplete line that has been read
	remain  int64  // number of bytes that may still be written
	lines   int64  // number of lines that may still be written; negative for no limit
	fresh   bool   // true if the next message begins a line of the container's output
}

// toTail seeks to the beginning of the last n lines. If the log is not followed, it also stops the
// reader after n lines, so that it ignores lines that are written meanwhile.
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

// all reads the log to its end. If the log is followed, the end is reached when the container has
// ended.
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
		// Read once more after Running was called: if the container has ended, its last lines are
		// in the file now.
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

// onward reads to the end of the file. If the log was rotated, it also reads the files that were
// written since, up to the end of the file that now has the log's name.
func (r *reader) onward() error {
	for {
		next, older, err := open(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			return r.toEnd(r.file) // the log was renamed, and the runtime will create the new file soon
		}
		if err != nil {
			return fmt.Errorf("failed to open log file %q: %w", r.path, err)
		}
		same, err := sameFile(r.file, next)
		// The runtime has created the next file, so it no longer writes to the old one.
		err = errors.Join(err, r.toEnd(r.file))
		if err == nil && !same {
			if err = r.line(r.rest); err == nil {
				err = r.between(older)
			}
		}
		if err != nil || same {
			return errors.Join(err, next.Close())
		}
		_ = r.file.Close() // an error of Close can be ignored: the file was only read
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

// wait waits until Running must be called again: statePeriod has passed, or events were lost.
// Meanwhile it reads new lines when the directory changes.
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
				continue // the event is about a log of another run of the container
			}
			// New lines do not mean that the container has ended, so continue to wait.
			if err := r.onward(); err != nil {
				return err
			}
		case err := <-r.changes.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch of the log: %w", err)
			}
			return nil // events may have been lost, so return and read the file
		}
	}
}

// toEnd reads all complete lines of a file, and keeps an incomplete last line in r.rest.
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

// line writes the message that a line of the file contains. It skips a line that cannot be parsed.
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
	text   []byte // ends in a newline if the container's line is complete
}

// parse parses a line such as "2016-10-06T00:17:09.669794202Z stdout P text". The tag P means that
// the text is only a part of a longer line; F marks the last part.
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
