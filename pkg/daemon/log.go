// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// debugVerbosity is the -v from which on debug messages are written.
const debugVerbosity = 4

// NewLog returns the JSON log of a process, at klog's verbosity. What the
// libraries say by klog goes there too. Credentials that stand in it do not.
func NewLog(w io.Writer, verbosity int) *slog.Logger {
	level := slog.LevelInfo
	if verbosity >= debugVerbosity {
		level = slog.LevelDebug
	}
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: newRedactor().attr})
	quiet := slog.LevelWarn
	if verbosity >= debugVerbosity {
		quiet = level
	}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(libraries{handler, quiet}), klog.ContextualLogger(true))
	return slog.New(handler)
}
