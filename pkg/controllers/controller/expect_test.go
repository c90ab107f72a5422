// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestExpectCreations: what was made is waited for, and nothing else in its place.
func TestExpectCreations(t *testing.T) {
	const key = "n/o"
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		// answers are what the calls return: UIDs, or "" for an error.
		answers []types.UID
		// during are seen while the first call is on its way, after when all have returned.
		during, after []types.UID
		passed        time.Duration
		met           bool
	}{
		"nothing made":                         {met: true},
		"not seen":                             {answers: []types.UID{"a"}},
		"seen":                                 {answers: []types.UID{"a"}, after: []types.UID{"a"}, met: true},
		"seen before the answer":               {answers: []types.UID{"a"}, during: []types.UID{"a"}, met: true},
		"one of two":                           {answers: []types.UID{"a", "b"}, after: []types.UID{"b"}},
		"both, one early":                      {answers: []types.UID{"a", "b"}, during: []types.UID{"b"}, after: []types.UID{"a"}, met: true},
		"a cache that is being filled, early":  {answers: []types.UID{"a"}, during: []types.UID{"x", "y"}},
		"a cache that is being filled, late":   {answers: []types.UID{"a"}, after: []types.UID{"x", "y"}},
		"refused":                              {answers: []types.UID{""}, met: true},
		"refused, and made all the same":       {answers: []types.UID{""}, during: []types.UID{"a"}, met: true},
		"one made, one refused":                {answers: []types.UID{"a", ""}, after: []types.UID{"x"}},
		"waited for long enough":               {answers: []types.UID{"a"}, passed: time.Hour, met: true},
		"waited for, but not for long enough":  {answers: []types.UID{"a"}, passed: time.Minute},
		"made by a call whose answer was lost": {answers: []types.UID{"a", ""}, after: []types.UID{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			e := controller.NewExpectations(clk)
			_, err := e.Create(key, len(tc.answers), func(i int) (types.UID, error) {
				if i == 0 {
					for _, uid := range tc.during {
						e.Created(key, uid)
					}
				}
				if tc.answers[i] == "" {
					return "", refused
				}
				return tc.answers[i], nil
			})
			if err != nil && !errors.Is(err, refused) {
				t.Fatal(err)
			}
			for _, uid := range tc.after {
				e.Created(key, uid)
			}
			clk.Step(tc.passed)
			if got := e.Met(key, "owner"); got != tc.met {
				t.Errorf("met: %v, want %v", got, tc.met)
			}
		})
	}
}

// TestExpectationsOfEarlierOwner: an object that replaces another one of its name does not
// wait for what was written for that one (kubernetes/kubernetes#142247).
func TestExpectationsOfEarlierOwner(t *testing.T) {
	const key = "n/o"
	for name, write := range map[string]func(e *controller.Expectations){
		"created": func(e *controller.Expectations) {
			if _, err := e.Create(key, 1, func(int) (types.UID, error) { return "a", nil }); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(e *controller.Expectations) { e.Deletes(key, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			e := controller.NewExpectations(clocktesting.NewFakeClock(time.Unix(0, 0)))
			if !e.Met(key, "first") {
				t.Fatal("a new object is waited for")
			}
			write(e)
			if e.Met(key, "first") {
				t.Error("the first object does not wait for what was written for it")
			}
			if !e.Met(key, "second") {
				t.Error("the second object waits for what was written for the first")
			}
			write(e)
			if e.Met(key, "second") {
				t.Error("the second object does not wait for what was written for it")
			}
		})
	}
}
