// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kvtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// testGroup checks that each write of a group has the same result as if it were made alone.
func testGroup(t *testing.T, ctx context.Context, s kv.Store) {
	const callers, rounds = 200, 4
	group, together := kv.NewGroup(ctx, clock.Real(), callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			defer group.Leave()
			if i%10 == 9 {
				return // this caller writes nothing
			}
			if err := writeAlong(together, s, fmt.Sprintf("/group/%03d", i), rounds); err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	all.Wait()
	// All callers increment one key: no increment may be lost.
	group, together = kv.NewGroup(ctx, clock.Real(), callers)
	for range callers {
		all.Go(func() {
			defer group.Leave()
			if err := increment(together, s, "/count"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if it, _, err := s.Get(ctx, "/count"); err != nil || it == nil || string(it.Value) != fmt.Sprint(callers) {
		t.Errorf("%d callers counted to %+v, %v", callers, it, err)
	}
	if res, err := s.Range(ctx, kv.RangeOptions{Prefix: "/group/"}); err != nil || len(res.Items) != callers/2 {
		t.Errorf("%d keys are left, %v", len(res.Items), err)
	}
}

// writeAlong creates a key, changes it several times, and deletes it if its last digit is odd.
// Before each write it tries the same write with a wrong expected revision, which must fail.
func writeAlong(ctx context.Context, s kv.Store, key string, rounds int) error {
	var rev int64
	for i := range rounds {
		value := []byte(fmt.Sprint(key, i))
		if res, err := s.Put(ctx, key, value, rev+1, 0); err != nil || res.OK ||
			(res.Current == nil) != (rev == 0) || rev != 0 && res.Current.ModRevision != rev {
			return fmt.Errorf("with a wrong expectation: %+v, %w", res, err)
		}
		res, err := s.Put(ctx, key, value, rev, int64(i%2)*600)
		if err != nil || !res.OK || res.Revision <= rev {
			return fmt.Errorf("put: %+v, %w", res, err)
		}
		rev = res.Revision
		if it, _, err := s.Get(ctx, key); err != nil || it == nil || it.ModRevision != rev ||
			string(it.Value) != string(value) {
			return fmt.Errorf("written at %d, there is %+v, %w", rev, it, err)
		}
	}
	if key[len(key)-1]%2 == 0 {
		return nil
	}
	if res, err := s.Delete(ctx, key, rev+1); err != nil || res.OK || res.Current == nil {
		return fmt.Errorf("delete with a wrong expectation: %+v, %w", res, err)
	}
	if res, err := s.Delete(ctx, key, rev); err != nil || !res.OK || res.Revision <= rev {
		return fmt.Errorf("delete: %+v, %w", res, err)
	}
	return nil
}

// increment adds one to the number in a key.
func increment(ctx context.Context, s kv.Store, key string) error {
	var cur *kv.Item
	for {
		n, rev := 0, int64(0)
		if cur != nil {
			if _, err := fmt.Sscan(string(cur.Value), &n); err != nil {
				return err
			}
			rev = cur.ModRevision
		}
		res, err := s.Put(ctx, key, []byte(fmt.Sprint(n+1)), rev, 0)
		if err != nil || res.OK {
			return err
		}
		cur = res.Current
	}
}
