// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow has a running server take over what changes in a configuration
// file. What cannot be taken over is logged, and leaves what was there.
package follow

import (
	"context"
	"log/slog"
	"os"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
)

// look is how often a file is read although nothing has been heard of it.
const look = time.Minute

// File is a configuration file that is followed.
type File struct {
	Path string
	// Text is what has been taken over at the start.
	Text string
	// Check reports what is wrong with a text; one that is wrong stays wrong.
	Check func(text string) error
	// Take takes over a text that is right. If it fails it is tried again.
	Take func(ctx context.Context, text string) error
	// Done is told how each attempt ended; may be nil.
	Done func(text string, err error)
	Log  *slog.Logger
}

// Run follows the file until ctx is done.
func (f *File) Run(ctx context.Context) {
	text := f.Text
	filesystem.WatchUntil(ctx, look, f.Path, func() { text = f.read(ctx, text) }, func(err error) {
		f.Log.Error("Configuration file not watched", "file", f.Path, "err", err)
	})
}

// read takes over the file if it is another than text, and returns what need not
// be read again.
func (f *File) read(ctx context.Context, text string) string {
	data, err := os.ReadFile(f.Path)
	switch {
	case err != nil:
		f.done("", err)
		return text
	case string(data) == text:
		return text
	}
	next := string(data)
	if err := f.Check(next); err != nil {
		f.done(next, err)
		return next
	}
	if err := f.Take(ctx, next); err != nil {
		f.done(next, err)
		return text
	}
	f.done(next, nil)
	return next
}

func (f *File) done(text string, err error) {
	if err != nil {
		f.Log.Error("Configuration file not reloaded", "file", f.Path, "err", err)
	} else {
		f.Log.Info("Configuration file reloaded", "file", f.Path)
	}
	if f.Done != nil {
		f.Done(text, err)
	}
}
