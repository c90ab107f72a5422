// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/kvtest"
	"keelson.dev/apiserver/store/kv/memory"
)

func TestConformance(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kv.Store {
		s := memory.New(clock.Real())
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

func TestExpiryFollowsTheClock(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1000, 0))
	s := memory.New(clk)
	put := func(key string, ttl int64) {
		if res, err := s.Put(t.Context(), key, nil, 0, ttl); err != nil || !res.OK {
			t.Fatal(res, err)
		}
	}
	has := func(key string) bool {
		it, _, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return it != nil
	}
	put("long", 100)
	put("short", 10)
	put("kept", 0)
	steps := []struct {
		after                time.Duration
		long, short, forEver bool
	}{
		{9 * time.Second, true, true, true},
		{time.Second, true, false, true},
		{89 * time.Second, true, false, true},
		{time.Second, false, false, true},
	}
	for _, st := range steps {
		clk.Step(st.after)
		if has("long") != st.long || has("short") != st.short || has("kept") != st.forEver {
			t.Errorf("after %v more: long %t, short %t, kept %t", st.after, has("long"), has("short"), has("kept"))
		}
	}
}
