// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"runtime"
)

// filter passes on the records from a level on, and those of modules that are to say more.
type filter struct {
	slog.Handler
	level   slog.Leveler
	modules Modules
}

// Enabled reports whether some record of level is kept.
func (f filter) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= min(f.level.Level(), f.modules.lowest()) && f.Handler.Enabled(ctx, level)
}

// Handle passes r on, if it is kept.
func (f filter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < f.level.Level() && !f.modules.keep(r) {
		return nil
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs keeps the level.
func (f filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return filter{f.Handler.WithAttrs(attrs), f.level, f.modules}
}

// WithGroup keeps the level.
func (f filter) WithGroup(name string) slog.Handler {
	return filter{f.Handler.WithGroup(name), f.level, f.modules}
}

// caller is where in the program r was made.
func caller(r slog.Record) (file string, line int) {
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	return frame.File, frame.Line
}
