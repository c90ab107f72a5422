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

// recorder is a commit function that only records how many writes it is called with.
type recorder chan int

func (r recorder) commit(all []*kv.Write) { r <- len(all) }

// TestGroupGathers checks that writes are made once every caller that has not left waits for one.
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
			t.Fatal("writes were made before the third caller wrote")
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
			t.Errorf("a caller waited for %v", took)
		}
		synctest.Wait()
	})
}

// TestGroupHurries checks that a caller that does not write delays the others by groupPatience
// only.
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
			t.Errorf("the callers waited for %v", took)
		}
		synctest.Wait()
	})
}
