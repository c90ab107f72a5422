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
// What is said of them is looked at once everything has been said.
type switches map[string]string

// Set adds to what was said before.
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

// String is what Set takes, in order.
func (s *switches) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*s)) {
		out = append(out, name+"="+(*s)[name])
	}
	return strings.Join(out, ",")
}

// Type names the flag's value in usage.
func (*switches) Type() string { return "mapStringString" }

// states tells which are on, and what is wrong with the first that is neither on nor off.
// Names of many ("api/all") are to be said to be one of the two in full.
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
