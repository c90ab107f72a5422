// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestWhole checks that graphComplete returns false while the objects of a kind are not listed yet,
// but not longer than syncPatience, so that a kind that cannot be listed does not block the
// collection of other kinds forever.
func TestWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := false
		c := &Controller{Deps: controller.Deps{Clock: clock.Real()}, monitors: map[schema.GroupVersionResource]*monitor{}}
		want := func(what string, yes bool) {
			t.Helper()
			if c.graphComplete() != yes {
				t.Errorf("%s: %v", what, !yes)
			}
		}
		want("nobody knows what there is", false)
		c.monitors[schema.GroupVersionResource{Resource: "a"}] = &monitor{synced: func() bool { return true },
			since: c.Clock.Now()}
		want("one kind", true)
		c.monitors[schema.GroupVersionResource{Resource: "b"}] = &monitor{synced: func() bool { return synced },
			since: c.Clock.Now()}
		want("a kind that came", false)
		<-c.Clock.After(syncPatience - time.Second)
		want("still not listed", false)
		<-c.Clock.After(time.Second)
		want("not listed for long", true)
		synced = true
		want("listed", true)
	})
}
