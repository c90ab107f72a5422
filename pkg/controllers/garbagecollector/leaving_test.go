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

// TestLeaving checks that the collection of objects in a terminating namespace is delayed, because
// the namespace controller deletes them, but only for leavingPause, because that controller may
// itself wait for the garbage collector.
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
		"not terminating":               {nil, 0},
		"terminating":                   {at(0), leavingPause},
		"terminating for three seconds": {at(-3 * time.Second), leavingPause - 3*time.Second},
		"terminating, clock is ahead":   {at(time.Hour), leavingPause},
		"terminating for too long":      {at(-leavingPause), 0},
		"terminating for much too long": {at(-time.Hour), leavingPause - time.Hour},
	} {
		spaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: c.deletion}}
		if err := spaces.Add(ns); err != nil {
			t.Fatal(err)
		}
		gc := &Controller{Deps: controller.Deps{Clock: clock.Real()}, namespaces: corelisters.NewNamespaceLister(spaces)}
		if got := gc.delayFor("a"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := gc.delayFor("b"); got != 0 {
			t.Errorf("an unknown namespace is left alone for %v", got)
		}
	}
}
