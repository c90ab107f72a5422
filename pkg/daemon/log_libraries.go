// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
)

// libraries is the log of the libraries, which say more at Info than an
// operator wants to keep.
type libraries struct {
	slog.Handler
	level slog.Leveler
}

// Enabled reports whether a record of level is kept.
func (l libraries) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= l.level.Level() && l.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the level.
func (l libraries) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraries{l.Handler.WithAttrs(attrs), l.level}
}

// WithGroup keeps the level.
func (l libraries) WithGroup(name string) slog.Handler {
	return libraries{l.Handler.WithGroup(name), l.level}
}
