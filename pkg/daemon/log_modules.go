// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
)

// Modules sets the verbosity of single source files, in the form "pattern=N,..." of the flag
// --vmodule. A pattern with a slash matches the path of a file, and a pattern without a slash
// matches its name. Paths and names are compared without the suffix .go.
type Modules []module

type module struct {
	pattern   string
	verbosity uint64
}

// Set parses the flag's value and replaces the previous value.
func (m *Modules) Set(v string) error {
	var out Modules
	for s := range strings.SplitSeq(v, ",") {
		if s == "" {
			continue
		}
		pattern, n, ok := strings.Cut(s, "=")
		if !ok || pattern == "" || n == "" {
			return fmt.Errorf("%q does not have the pattern=N format", s)
		}
		verbosity, err := strconv.ParseUint(n, 10, 31)
		if err != nil {
			return fmt.Errorf("parsing verbosity in %q: %w", s, err)
		}
		out = append(out, module{pattern, verbosity})
	}
	*m = out
	return nil
}

// String returns the value in the form that Set parses.
func (m *Modules) String() string {
	var out []string
	for _, one := range *m {
		out = append(out, fmt.Sprintf("%s=%d", one.pattern, one.verbosity))
	}
	return strings.Join(out, ",")
}

// Type returns the flag's type for the usage text.
func (*Modules) Type() string { return "pattern=N,..." }

// lowest returns the lowest log level that any module keeps.
func (m *Modules) lowest() slog.Level {
	out := slog.LevelError
	for _, one := range *m {
		out = min(out, one.level())
	}
	return out
}

// keep reports whether r comes from a file whose configured verbosity includes r.
func (m *Modules) keep(r slog.Record) bool {
	if len(*m) == 0 {
		return false
	}
	file, _ := caller(r)
	file = strings.TrimSuffix(file, ".go")
	for _, one := range *m {
		name := file
		if !strings.Contains(one.pattern, "/") {
			name = path.Base(file)
		}
		if ok, err := path.Match(one.pattern, name); ok && err == nil {
			return r.Level >= one.level()
		}
	}
	return false
}

// level returns the lowest log level that the module keeps. Records with verbosity N have level -N.
func (m module) level() slog.Level { return -slog.Level(min(m.verbosity, 1<<15)) }
