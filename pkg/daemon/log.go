// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// debugVerbosity is the lowest value of the flag -v at which debug messages are logged.
const debugVerbosity = 4

// Verbosity is the verbosity of a process's log, with the meaning of klog's flag -v. It may be
// changed while the process runs, and is safe for concurrent use.
type Verbosity struct{ own, libraries slog.LevelVar }

// NewVerbosity returns a Verbosity with value n.
func NewVerbosity(n int) *Verbosity {
	v := &Verbosity{}
	v.Set(n)
	return v
}

// Set changes the verbosity to n.
func (v *Verbosity) Set(n int) {
	own, libraries := slog.LevelInfo, slog.LevelWarn
	if n >= debugVerbosity {
		own, libraries = slog.LevelDebug, slog.LevelDebug
	}
	v.own.Set(own)
	v.libraries.Set(libraries)
}

// Log returns the JSON log of a process with verbosity v. The log includes messages that libraries
// write with klog. Credentials in messages are redacted.
func (v *Verbosity) Log(w io.Writer) *slog.Logger {
	return v.log(slog.NewJSONHandler(w,
		&slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: newRedactor().attr}), nil)
}

// log returns the log that handler writes. klog's messages have a separate level, because libraries
// log more at level Info than an operator wants to keep.
func (v *Verbosity) log(handler slog.Handler, modules Modules) *slog.Logger {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(filter{handler, &v.libraries, modules}), klog.ContextualLogger(true))
	return slog.New(filter{handler, &v.own, modules})
}

// NewLog returns the JSON log of a process with a fixed verbosity.
func NewLog(w io.Writer, verbosity int) *slog.Logger { return NewVerbosity(verbosity).Log(w) }
