// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow reloads configuration files of a running server. If a changed file cannot be
// applied, the error is logged, and the configuration in use stays.
package follow

import (
	"context"
	"log/slog"
	"os"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
)

// look is the interval at which a file is read even if the file system reports no change.
const look = time.Minute

// File is a configuration file that is reloaded when it changes.
type File struct {
	Path string
	// Text is the content of the file that is already in use.
	Text string
	// Check returns an error if text is invalid. An invalid text is not checked again until the file
	// changes.
	Check func(text string) error
	// Take applies a valid text. If it fails, it is called again the next time the file is read.
	Take func(ctx context.Context, text string) error
	// Done is called with the result of each attempt to reload. It may be nil.
	Done func(text string, err error)
	Log  *slog.Logger
}

// Run reloads the file until ctx is done.
func (f *File) Run(ctx context.Context) {
	text := f.Text
	filesystem.WatchUntil(ctx, look, f.Path, func() { text = f.read(ctx, text) }, func(err error) {
		f.Log.Error("Failed to watch configuration file", "file", f.Path, "err", err)
	})
}

// read applies the file if it differs from text. It returns the text with which the file is
// compared the next time: the file's content, or text if the attempt is to be repeated.
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
		f.Log.Error("Failed to reload configuration file", "file", f.Path, "err", err)
	} else {
		f.Log.Info("Configuration file reloaded", "file", f.Path)
	}
	if f.Done != nil {
		f.Done(text, err)
	}
}
