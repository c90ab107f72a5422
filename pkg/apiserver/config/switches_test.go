// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestSwitches(t *testing.T) {
	for text, want := range map[string]string{
		"a/v1=true,b/v2=false":    "a/v1=true,b/v2=false",
		"api/all":                 "api/all=true",
		" a/v1=false , a/v1=true": "a/v1=true",
		"":                        "",
		"a/v1=perhaps":            "error",
	} {
		var s switches
		got := "error"
		if err := s.Set(text); err == nil {
			got = s.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
