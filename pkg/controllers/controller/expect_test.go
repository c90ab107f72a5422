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

// TestExpectCreations checks that expectations are met when the cache shows the objects that were
// created, and that other objects in the cache do not meet them.
func TestExpectCreations(t *testing.T) {
	const key = "n/o"
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		// answers are the UIDs that the creates return. For "" the create returns an error.
		answers []types.UID
		// The field during has the UIDs that the cache first shows during the first create, and the
		// field after those that it first shows after all creates have returned. The field passed
		// is the time between the creates and the call of Met, and met is the expected result of
		// Met.
		during, after []types.UID
		passed        time.Duration
		met           bool
	}{
		"nothing created":          {met: true},
		"not seen":                 {answers: []types.UID{"a"}},
		"seen":                     {answers: []types.UID{"a"}, after: []types.UID{"a"}, met: true},
		"seen before the response": {answers: []types.UID{"a"}, during: []types.UID{"a"}, met: true},
		"one of two":               {answers: []types.UID{"a", "b"}, after: []types.UID{"b"}},
		"both, one before the response": {answers: []types.UID{"a", "b"}, during: []types.UID{"b"},
			after: []types.UID{"a"}, met: true},
		"other objects during the call":    {answers: []types.UID{"a"}, during: []types.UID{"x", "y"}},
		"other objects after the call":     {answers: []types.UID{"a"}, after: []types.UID{"x", "y"}},
		"rejected":                         {answers: []types.UID{""}, met: true},
		"error, but created":               {answers: []types.UID{""}, during: []types.UID{"a"}, met: true},
		"one created, one rejected":        {answers: []types.UID{"a", ""}, after: []types.UID{"x"}},
		"timed out":                        {answers: []types.UID{"a"}, passed: time.Hour, met: true},
		"not yet timed out":                {answers: []types.UID{"a"}, passed: time.Minute},
		"created by a call without answer": {answers: []types.UID{"a", ""}, after: []types.UID{"b"}},
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

// TestExpectationsOfEarlierOwner checks that an owner that replaces another one of the same name
// does not wait for the writes for the replaced one (kubernetes/kubernetes#142247).
func TestExpectationsOfEarlierOwner(t *testing.T) {
	const key = "n/o"
	for name, write := range map[string]func(e *controller.Expectations){
		"created": func(e *controller.Expectations) {
			if _, err := e.Create(key, 1, func(int) (types.UID, error) { return "a", nil }); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(e *controller.Expectations) { e.ExpectDeletion(key, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			e := controller.NewExpectations(clocktesting.NewFakeClock(time.Unix(0, 0)))
			if !e.Met(key, "first") {
				t.Fatal("a new object has expectations")
			}
			write(e)
			if e.Met(key, "first") {
				t.Error("the first object does not wait for its own writes")
			}
			if !e.Met(key, "second") {
				t.Error("the second object waits for the first one's writes")
			}
			write(e)
			if e.Met(key, "second") {
				t.Error("the second object does not wait for its own writes")
			}
		})
	}
}
