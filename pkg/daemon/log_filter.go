// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"runtime"
)

// filter drops the records below a level, except for records of modules that have a higher
// verbosity (flag --vmodule).
type filter struct {
	slog.Handler
	level   slog.Leveler
	modules Modules
}

// Enabled reports whether some records of the level may be kept.
func (f filter) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= min(f.level.Level(), f.modules.lowest()) && f.Handler.Enabled(ctx, level)
}

// Handle passes r to the next handler if r must be kept.
func (f filter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < f.level.Level() && !f.modules.keep(r) {
		return nil
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs returns a filter with the same level for a handler with the attributes.
func (f filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return filter{f.Handler.WithAttrs(attrs), f.level, f.modules}
}

// WithGroup returns a filter with the same level for a handler with the group.
func (f filter) WithGroup(name string) slog.Handler {
	return filter{f.Handler.WithGroup(name), f.level, f.modules}
}

// caller returns the source file and line that created r.
func caller(r slog.Record) (file string, line int) {
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	return frame.File, frame.Line
}
