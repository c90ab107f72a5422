// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestAsking checks that the first caller waits for at most patience. While its call of the webhook
// has not ended, later callers do not wait.
func TestAsking(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	a := newAsking(clk)
	answer, got := make(chan struct{}), make(chan fields.Set)
	go func() {
		got <- a.soon(func() fields.Set {
			<-answer
			return fields.Set{"x": "late"}
		})
	}()
	for a.since.Load() == 0 {
		runtime.Gosched()
	}
	clk.Step(patience)
	if set := <-got; set != nil {
		t.Errorf("the webhook did not answer, but got %v", set)
	}
	if set := a.soon(func() fields.Set { return fields.Set{"x": "2"} }); set != nil {
		t.Errorf("a call is unanswered, but got %v", set)
	}
	close(answer)
	for a.since.Load() != 0 {
		runtime.Gosched()
	}
	if set := a.soon(func() fields.Set { return fields.Set{"x": "3"} }); set["x"] != "3" {
		t.Errorf("got %v", set)
	}
}

// TestPeek checks that Peek returns the labels and name of an object in another version than the
// stored one without calling a webhook. It returns false for an object in the requested version and
// for malformed objects.
func TestPeek(t *testing.T) {
	c := remoteCodec{codec: codec{version: "v2"}}
	for name, tc := range map[string]struct {
		data string
		ok   bool
	}{
		"another version": {
			`{"apiVersion":"g.io/v1","kind":"K","metadata":{"name":"a","namespace":"n","labels":{"x":"y"}}}`, true},
		"the version": {`{"apiVersion":"g.io/v2","kind":"K","metadata":{"name":"a"}}`, false},
		"no version":  {`{"apiVersion":"a/b/c","metadata":{"name":"a"}}`, false},
		"no object":   {`[]`, false},
	} {
		attrs, ok := c.Peek([]byte(tc.data))
		if ok != tc.ok {
			t.Errorf("%s: got %t", name, ok)
		}
		if ok && (!labels.Equals(attrs.Labels, labels.Set{"x": "y"}) || attrs.Fields["metadata.name"] != "a" ||
			attrs.Fields["metadata.namespace"] != "n") {
			t.Errorf("%s: %+v", name, attrs)
		}
	}
}
