// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/apiserver/store/kv/memory"
)

// TestPrompt polls a watch when it is told to, and never waits for it.
func TestPrompt(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	e := run(t, memory.New(clk), clk)
	w := watchAll(t, e.store, WatchOptions{AllowBookmarks: true, Predicate: Predicate{Namespace: "ns"}})
	told := make(chan struct{}, 1)
	w.Prompt(func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	expect := func(what string, types ...EventType) {
		t.Helper()
		for _, want := range types {
			<-told
			events, err := w.Poll()
			if err != nil || len(events) != 1 || events[0].Type != want {
				t.Fatalf("%s: %+v, %v", what, events, err)
			}
		}
		if events, err := w.Poll(); err != nil || len(events) > 0 {
			t.Errorf("%s: more: %+v, %v", what, events, err)
		}
	}
	expect("nothing has happened")
	create(t, e.store, newThing("ns", "t"))
	expect("creation", Added)
	create(t, e.store, newThing("other", "t"))
	settle(t, e.store)
	expect("creation elsewhere")
	update(t, e.store, "ns/t", func(o *thing) { o.Data = "x" })
	expect("update", Modified)
	clk.Step(bookmarkEvery)
	expect("a minute", Bookmark)
	clk.Step(bookmarkEvery)
	expect("another minute", Bookmark)
	e.store.cache.mu.Lock()
	e.store.cache.watchers.endAll(5)
	e.store.cache.mu.Unlock()
	<-told
	if _, err := w.Poll(); !apierrors.IsResourceExpired(err) {
		t.Errorf("after the window has passed by: %v", err)
	}
}
