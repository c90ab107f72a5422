// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// switches are names that are each on or off: "a=true,b=false,c", where c is on.
type switches map[string]bool

// Set adds to what was said before.
func (s *switches) Set(v string) error {
	for pair := range strings.SplitSeq(v, ",") {
		name, value, said := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" && !said {
			continue
		}
		on := true
		if said {
			var err error
			if on, err = strconv.ParseBool(value); err != nil {
				return fmt.Errorf("%s: %q is neither true nor false", name, value)
			}
		}
		if *s == nil {
			*s = switches{}
		}
		(*s)[name] = on
	}
	return nil
}

// String is what Set takes, in order.
func (s *switches) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*s)) {
		out = append(out, fmt.Sprintf("%s=%t", name, (*s)[name]))
	}
	return strings.Join(out, ",")
}

// Type names the flag's value in usage.
func (*switches) Type() string { return "mapStringString" }
