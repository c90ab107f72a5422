// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kv_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// recorder makes writes by doing nothing but counting.
type recorder chan int

func (r recorder) commit(all []*kv.Write) { r <- len(all) }

// TestGroupGathers: writes are made when every caller waits for one, those who have
// left not being waited for.
func TestGroupGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := make(recorder, 10)
		group, ctx := kv.NewGroup(t.Context(), clock.Real(), 3)
		if kv.GroupOf(ctx) != group || kv.GroupOf(context.Background()) != nil {
			t.Error("the context does not lead to the group")
		}
		begin := time.Now()
		for range 2 {
			go group.Make(&kv.Write{}, made.commit)
		}
		synctest.Wait()
		if len(made) != 0 {
			t.Fatal("made before the third came")
		}
		go group.Make(&kv.Write{}, made.commit)
		if n := <-made; n != 3 {
			t.Errorf("%d writes in one go, want 3", n)
		}
		for range 2 {
			go group.Make(&kv.Write{}, made.commit)
		}
		synctest.Wait()
		group.Leave()
		if n := <-made; n != 2 {
			t.Errorf("%d writes in one go, want 2", n)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("somebody has waited for %v", took)
		}
		synctest.Wait()
	})
}

// TestGroupHurries: a caller who is busy with something else does not hold others up.
func TestGroupHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := make(recorder, 10)
		group, _ := kv.NewGroup(t.Context(), clock.Real(), 3)
		begin := time.Now()
		for range 2 {
			go group.Make(&kv.Write{}, made.commit)
		}
		if n := <-made; n != 2 {
			t.Errorf("%d writes in one go, want 2", n)
		}
		if took := time.Since(begin); took == 0 || took > time.Second {
			t.Errorf("they have waited for %v", took)
		}
		synctest.Wait()
	})
}
