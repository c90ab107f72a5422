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

// switches is a flag value: a list of names with their values, such as "a=true,b=false,c". A name
// without a value is on. The values are validated after all flags are parsed.
type switches map[string]string

// Set parses v and adds its names to those of earlier calls.
func (s *switches) Set(v string) error {
	for pair := range strings.SplitSeq(v, ",") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if *s == nil {
			*s = switches{}
		}
		(*s)[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return nil
}

// String returns the names and values in the form that Set parses, sorted by name.
func (s *switches) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*s)) {
		out = append(out, name+"="+(*s)[name])
	}
	return strings.Join(out, ",")
}

// Type returns the name of the flag's type for the usage text.
func (*switches) Type() string { return "mapStringString" }

// states returns the value of each name: true for on, false for off. It returns an error if a value
// is not a boolean. Names that stand for several APIs ("api/all") need an explicit value.
func (s *switches) states() (map[string]bool, error) {
	out := make(map[string]bool, len(*s))
	var wrong error
	for _, name := range slices.Sorted(maps.Keys(*s)) {
		value, on := (*s)[name], true
		var err error
		switch many := strings.HasPrefix(name, "api/"); {
		case many && value != "true" && value != "false":
			err = fmt.Errorf("invalid value %s=%s", name, value)
		case value != "":
			if on, err = strconv.ParseBool(value); err != nil {
				err = fmt.Errorf("invalid value of %s: %s, err: %w", name, value, err)
			}
		}
		if err == nil {
			out[name] = on
		} else if wrong == nil {
			wrong = err
		}
	}
	return out, wrong
}
