// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestSwitches(t *testing.T) {
	for text, want := range map[string]struct{ said, wrong string }{
		"a/v1=true,b/v2=false":  {said: "a/v1=true,b/v2=false"},
		" a/v1 = false ,a/v1=1": {said: "a/v1=1"},
		"a/v1,a/v2=":            {said: "a/v1=,a/v2="},
		"":                      {},
		"=true":                 {said: "=true"},
		"a/v1=perhaps": {"a/v1=perhaps",
			`invalid value of a/v1: perhaps, err: strconv.ParseBool: parsing "perhaps": invalid syntax`},
		"api/all=maybe":           {"api/all=maybe", "invalid value api/all=maybe"},
		"api/all":                 {"api/all=", "invalid value api/all="},
		"api/all=true,api/ga=1":   {"api/all=true,api/ga=1", "invalid value api/ga=1"},
		"api/beta=true,a/v1=TRUE": {said: "a/v1=TRUE,api/beta=true"},
	} {
		var s switches
		if err := s.Set(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		wrong := ""
		if _, err := s.states(); err != nil {
			wrong = err.Error()
		}
		if got := s.String(); got != want.said || wrong != want.wrong {
			t.Errorf("%q: %q, %q, want %q, %q", text, got, wrong, want.said, want.wrong)
		}
	}
	s := switches{"a/v1": "", "b/v1": "0", "api/beta": "true"}
	got, err := s.states()
	if err != nil || len(got) != 3 || !got["a/v1"] || got["b/v1"] || !got["api/beta"] {
		t.Errorf("%v, %v", got, err)
	}
}
