// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2/textlogger"
)

// Kubernetes' log formats, as values of the flag --logging-format.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// LogFlags has Kubernetes' flags for the log format. The log is written to standard error without
// buffering.
type LogFlags struct {
	Format         string
	FlushFrequency time.Duration
	Modules        Modules

	text, json streams
}

// streams has the flags for the output of one log format.
type streams struct {
	split  bool
	buffer resource.QuantityValue
}

// Add defines the flags in fs.
func (f *LogFlags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.Format, "logging-format", FormatText,
		`format of the log: "text" (lines in the format of klog) or "json"`)
	fs.DurationVar(&f.FlushFrequency, "log-flush-frequency", 5*time.Second,
		"no effect: the log is not buffered")
	fs.Var(&f.Modules, "vmodule",
		"verbosity of the log for single source files, instead of --v: PATTERN=N, separated by commas; only with "+
			"--logging-format=text")
	f.text.add(fs, FormatText)
	f.json.add(fs, FormatJSON)
}

func (s *streams) add(fs *pflag.FlagSet, format string) {
	fs.BoolVar(&s.split, "log-"+format+"-split-stream", false,
		"must be false: the whole log is written to standard error (true is an alpha feature of Kubernetes)")
	fs.Var(&s.buffer, "log-"+format+"-info-buffer-size",
		"must be 0: the log is not buffered (other sizes are an alpha feature of Kubernetes)")
}

// Validate returns the errors in the flags' values, worded as in Kubernetes.
func (f *LogFlags) Validate() error {
	var errs field.ErrorList
	if f.FlushFrequency <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("flushFrequency"), f.FlushFrequency.String(),
			"Must be greater than zero"))
	}
	if f.Format != FormatText && f.Format != FormatJSON {
		errs = append(errs, field.Invalid(field.NewPath("format"), f.Format, "Unsupported log format"))
	}
	if f.Format != FormatText && len(f.Modules) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("vmodule"), "Only supported for text log format"))
	}
	for _, s := range []struct {
		format string
		streams
	}{{FormatText, f.text}, {FormatJSON, f.json}} {
		at := field.NewPath("options", s.format)
		if s.split {
			errs = append(errs, field.Forbidden(at.Child("splitStream"), "Feature LoggingAlphaOptions is disabled"))
		}
		if !s.buffer.IsZero() {
			errs = append(errs, field.Forbidden(at.Child("infoBufferSize"), "Feature LoggingAlphaOptions is disabled"))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs.ToAggregate()
}

// Log returns the log of a process with verbosity v, in the format that the flags select. The log
// includes messages that libraries write with klog. Credentials in messages are redacted.
func (f *LogFlags) Log(v *Verbosity, w io.Writer) *slog.Logger {
	if f.Format == FormatJSON {
		return v.log(jsonLines{newJSONLines(w)}, f.Modules)
	}
	text := logr.ToSlogHandler(
		textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(w), textlogger.Verbosity(math.MaxInt32))))
	return v.log(redacting{text, newRedactor()}, f.Modules)
}

// newJSONLines returns a handler that writes JSON with Kubernetes' key names.
func newJSONLines(w io.Writer) slog.Handler {
	redactor := newRedactor()
	return slog.NewJSONHandler(w, &slog.HandlerOptions{AddSource: true, Level: slog.Level(-1 << 15),
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return redactor.attr(groups, a)
			}
			switch a.Key {
			case slog.TimeKey:
				return slog.Float64("ts", float64(a.Value.Time().UnixNano())/float64(time.Millisecond))
			case slog.LevelKey:
				// Kubernetes' JSON format has no level. Instead, jsonLines adds the verbosity to
				// records below level Error.
				return slog.Attr{}
			case slog.SourceKey:
				if at, ok := a.Value.Any().(*slog.Source); ok {
					dir, name := filepath.Split(at.File)
					return slog.String("caller", fmt.Sprintf("%s/%s:%d", filepath.Base(dir), name, at.Line))
				}
			}
			return redactor.attr(groups, a)
		}})
}

// jsonLines is a handler that adds the verbosity to each record below level Error.
type jsonLines struct{ slog.Handler }

// Handle writes r, with its verbosity if that is needed.
func (j jsonLines) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return j.Handler.Handle(ctx, r)
	}
	told := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	told.AddAttrs(slog.Int("v", max(0, -int(r.Level))))
	r.Attrs(func(a slog.Attr) bool {
		told.AddAttrs(a)
		return true
	})
	return j.Handler.Handle(ctx, told)
}

// WithAttrs returns a handler with the attributes, which also adds the verbosity.
func (j jsonLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return jsonLines{j.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler with the group, which also adds the verbosity.
func (j jsonLines) WithGroup(name string) slog.Handler { return jsonLines{j.Handler.WithGroup(name)} }

// redacting is a handler that removes credentials from records, for a next handler that cannot do
// so itself.
type redacting struct {
	slog.Handler
	redactor *redactor
}

// Handle passes a copy of r without credentials to the next handler.
func (h redacting) Handle(ctx context.Context, r slog.Record) error {
	told := slog.NewRecord(r.Time, r.Level, h.redactor.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		told.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, told)
}

// attr returns a copy of a without credentials. If a is a group, credentials inside are removed
// too.
func (h redacting) attr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() != slog.KindGroup {
		return h.redactor.attr(nil, a)
	}
	return slog.Attr{Key: a.Key, Value: slog.GroupValue(h.attrs(a.Value.Group())...)}
}

func (h redacting) attrs(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		out = append(out, h.attr(a))
	}
	return out
}

// WithAttrs returns a redacting handler with the attributes, from which credentials are removed.
func (h redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return redacting{h.Handler.WithAttrs(h.attrs(attrs)), h.redactor}
}

// WithGroup returns a redacting handler with the group.
func (h redacting) WithGroup(name string) slog.Handler {
	return redacting{h.Handler.WithGroup(name), h.redactor}
}
