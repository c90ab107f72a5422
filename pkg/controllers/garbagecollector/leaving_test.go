// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// A namespace that goes is left to its controller, but not for ever: that one may
// have to wait for what only the garbage collector does.
func TestLeaving(t *testing.T) {
	synctest.Test(t, testLeaving)
}

func testLeaving(t *testing.T) {
	now := clock.Real().Now()
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	for name, c := range map[string]struct {
		deletion *metav1.Time
		want     time.Duration
	}{
		"it stays":                            {nil, 0},
		"it goes":                             {at(0), leavingPause},
		"it has gone for three seconds":       {at(-3 * time.Second), leavingPause - 3*time.Second},
		"it goes by a clock that is ahead":    {at(time.Hour), leavingPause},
		"it does not come to its end":         {at(-leavingPause), 0},
		"it has not come to its end for long": {at(-time.Hour), leavingPause - time.Hour},
	} {
		spaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: c.deletion}}
		if err := spaces.Add(ns); err != nil {
			t.Fatal(err)
		}
		gc := &Controller{Deps: controller.Deps{Clock: clock.Real()}, spaces: corelisters.NewNamespaceLister(spaces)}
		if got := gc.leaving("a"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := gc.leaving("b"); got != 0 {
			t.Errorf("a namespace that nobody knows is left alone for %v", got)
		}
	}
}
