// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

// RequestHeader configures which front proxies may name the user of a request, and in which
// headers.
type RequestHeader struct {
	ClientCAFile        string
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

func (r *RequestHeader) validate(add func(format string, args ...any)) {
	for _, list := range []struct {
		flag   string
		values []string
	}{
		{"requestheader-username-headers", r.UsernameHeaders}, {"requestheader-group-headers", r.GroupHeaders},
		{"requestheader-extra-headers-prefix", r.ExtraHeaderPrefixes}, {"requestheader-allowed-names", r.AllowedNames},
		{"requestheader-uid-headers", r.UIDHeaders},
	} {
		if slices.ContainsFunc(list.values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			add("empty value in %q", list.flag)
		}
	}
	if len(r.UIDHeaders) > 0 &&
		!slices.ContainsFunc(r.UIDHeaders, func(h string) bool { return strings.EqualFold(h, "X-Remote-Uid") }) {
		add("--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API " +
			"aggregation will not work")
	}
}
