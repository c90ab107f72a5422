// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger returns a logger of etcd whose messages h handles. They have the source lines of etcd.
func NewLogger(h slog.Handler) *zap.Logger { return zap.New(&logCore{handler: h}, zap.AddCaller()) }

// logCore passes etcd's zap log to slog. It logs levels below Warn at level Debug, because etcd
// logs much at Info that operators of an API server do not need.
type logCore struct {
	handler slog.Handler
}

var _ zapcore.Core = (*logCore)(nil)

// Enabled implements zapcore.Core.
func (c *logCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{handler: c.handler.WithAttrs(attrs(fields))}
}

// Check implements zapcore.Core.
func (c *logCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

// Write implements zapcore.Core.
func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, e.Caller.PC)
	r.AddAttrs(slog.String("component", "etcd"))
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

// Sync implements zapcore.Core.
func (c *logCore) Sync() error { return nil }

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l >= zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		out = append(out, slog.Any(f.Key, enc.Fields[f.Key]))
	}
	return out
}
