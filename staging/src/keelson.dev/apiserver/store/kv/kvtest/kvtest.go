// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kvtest is the suite of tests that every kv.Store passes.
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// patience bounds how long a test waits. Only a failing test waits so long.
const patience = 3 * time.Minute

// Run runs the suite. The function open returns an empty store, which the suite does not close.
func Run(t *testing.T, open func(t *testing.T) kv.Store) {
	tests := []struct {
		name string
		test func(t *testing.T, ctx context.Context, s kv.Store)
	}{
		{"Put", testPut},
		{"PutConditions", testPutConditions},
		{"Delete", testDelete},
		{"WriteAll", testWriteAll},
		{"Group", testGroup},
		{"Range", testRange},
		{"RangeInThePast", testRangeInThePast},
		{"Revision", testRevision},
		{"Watch", testWatch},
		{"WatchFromThePast", testWatchFromThePast},
		{"WatchProgress", testWatchProgress},
		{"WatchStop", testWatchStop},
		{"Compact", testCompact},
		{"TTL", testTTL},
		{"Concurrent", testConcurrent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			tt.test(t, ctx, open(t))
		})
	}
}

// put makes a Put that must succeed.
func put(t *testing.T, s kv.Store, key, value string, expect int64) int64 {
	t.Helper()
	res, err := s.Put(t.Context(), key, []byte(value), expect, 0)
	if err != nil || !res.OK {
		t.Fatalf("Put(%q, %q, %d) = %+v, %v", key, value, expect, res, err)
	}
	return res.Revision
}

func remove(t *testing.T, s kv.Store, key string, expect int64) int64 {
	t.Helper()
	res, err := s.Delete(t.Context(), key, expect)
	if err != nil || !res.OK {
		t.Fatalf("Delete(%q, %d) = %+v, %v", key, expect, res, err)
	}
	return res.Revision
}

func testPut(t *testing.T, ctx context.Context, s kv.Store) {
	if it, _, err := s.Get(ctx, "/a"); it != nil || err != nil {
		t.Fatalf("absent key: %v, %v", it, err)
	}
	r1 := put(t, s, "/a", "1", 0)
	for _, expect := range []int64{0, r1 + 1} {
		res, err := s.Put(ctx, "/a", []byte("x"), expect, 0)
		if err != nil || res.OK || res.Current == nil || res.Current.ModRevision != r1 || string(res.Current.Value) != "1" {
			t.Errorf("Put expecting %d = %+v, %v", expect, res, err)
		}
	}
	if res, err := s.Put(ctx, "/b", []byte("x"), r1, 0); err != nil || res.OK || res.Current != nil {
		t.Errorf("Put of an absent key expecting one = %+v, %v", res, err)
	}
	r2 := put(t, s, "/a", "2", r1)
	if r2 != r1+1 {
		t.Errorf("revisions %d, %d: failed writes count", r1, r2)
	}
	if it, rev, err := s.Get(ctx, "/a"); err != nil || string(it.Value) != "2" || it.ModRevision != r2 || rev != r2 {
		t.Errorf("Get = %+v, %d, %v", it, rev, err)
	}
}

// testPutConditions checks that a Put happens only if the conditions on other keys hold.
func testPutConditions(t *testing.T, ctx context.Context, s kv.Store) {
	a, b := put(t, s, "/a", "1", 0), put(t, s, "/b", "1", 0)
	broken := map[string][]kv.Unchanged{
		"other revision":     {{Key: "/a", Revision: a + 1}},
		"absent":             {{Key: "/none", Revision: a}},
		"absent, revision 0": {{Key: "/none"}},
		"one of two":         {{Key: "/a", Revision: a}, {Key: "/b", Revision: a}},
	}
	group, together := kv.NewGroup(ctx, clock.Real(), 1)
	defer group.Leave()
	for _, ctx := range []context.Context{ctx, together} {
		for name, conditions := range broken {
			if res, err := s.Put(ctx, "/new", nil, 0, 0, conditions...); err != nil || res.OK || res.Current != nil {
				t.Errorf("%s: Put = %+v, %v", name, res, err)
			}
			if res, err := s.Put(ctx, "/b", nil, b, 0, conditions...); err != nil || res.OK ||
				res.Current == nil || res.Current.ModRevision != b {
				t.Errorf("%s: Put of a key that exists = %+v, %v", name, res, err)
			}
		}
	}
	both := []kv.Unchanged{{Key: "/a", Revision: a}, {Key: "/b", Revision: b}}
	if res, err := s.Put(ctx, "/new", nil, 0, 600, both...); err != nil || !res.OK || res.Revision != b+1 {
		t.Errorf("Put with conditions that hold = %+v, %v", res, err)
	}
	remove(t, s, "/a", a)
	if res, err := s.Put(together, "/newer", nil, 0, 0, both...); err != nil || res.OK || res.Current != nil {
		t.Errorf("Put with a key that is gone = %+v, %v", res, err)
	}
}

func testDelete(t *testing.T, ctx context.Context, s kv.Store) {
	if res, err := s.Delete(ctx, "/a", 0); err != nil || res.OK {
		t.Errorf("Delete of an absent key = %+v, %v", res, err)
	}
	r := put(t, s, "/a", "1", 0)
	for _, expect := range []int64{0, r + 1} {
		res, err := s.Delete(ctx, "/a", expect)
		if err != nil || res.OK || res.Current == nil || res.Current.ModRevision != r {
			t.Errorf("Delete expecting %d = %+v, %v", expect, res, err)
		}
	}
	if got := remove(t, s, "/a", r); got != r+1 {
		t.Errorf("deletion at revision %d, want %d", got, r+1)
	}
	if it, _, err := s.Get(ctx, "/a"); it != nil || err != nil {
		t.Errorf("after Delete: %v, %v", it, err)
	}
	put(t, s, "/a", "again", 0)
}

// testWriteAll checks that WriteAll changes all keys at one revision, or none.
func testWriteAll(t *testing.T, ctx context.Context, s kv.Store) {
	all := []kv.Change{
		{Key: "/a", Expect: put(t, s, "/a", "1", 0), Delete: true},
		{Key: "/b", Expect: put(t, s, "/b", "1", 0), Value: []byte("2")},
		{Key: "/e", Expect: put(t, s, "/e", "1", 0), Delete: true},
	}
	kept := put(t, s, "/c", "1", 0)
	for name, wrong := range map[string]kv.Change{
		"a key with another revision": {Key: "/c", Expect: kept + 1}, "an absent key": {Key: "/d", Expect: 1},
		"a key expected to be absent": {Key: "/d"}, "a present one expected to be absent": {Key: "/c"},
	} {
		for _, wrong.Delete = range []bool{false, true} {
			if res, err := s.WriteAll(ctx, append(all[:len(all):len(all)], wrong)); err != nil || res.OK {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
	}
	w, err := s.Watch(ctx, "/", kept+1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	res, err := s.WriteAll(ctx, all)
	if err != nil || !res.OK || res.Revision != kept+1 {
		t.Fatalf("WriteAll = %+v, %v, want revision %d", res, err, kept+1)
	}
	b, err := w.Next(ctx)
	for err == nil && len(b.Events) == 0 {
		b, err = w.Next(ctx)
	}
	if err != nil || len(b.Events) != len(all) {
		t.Fatalf("the watch shows %+v, %v", b, err)
	}
	for i, e := range b.Events {
		if e.Key != all[i].Key || e.Deleted != all[i].Delete || e.ModRevision != res.Revision ||
			string(e.Value) != string(all[i].Value) {
			t.Errorf("the watch shows %+v for %+v", e, all[i])
		}
	}
	if got := list(t, s, kv.RangeOptions{Prefix: "/"}); got != "/b=2 /c=1 of 2" {
		t.Errorf("left: %s", got)
	}
}

// list formats a range as "key=value ..." and its count.
func list(t *testing.T, s kv.Store, opts kv.RangeOptions) string {
	t.Helper()
	res, err := s.Range(t.Context(), opts)
	if err != nil {
		t.Fatalf("Range(%+v): %v", opts, err)
	}
	var b strings.Builder
	for _, it := range res.Items {
		fmt.Fprintf(&b, "%s=%s ", it.Key, it.Value)
	}
	fmt.Fprintf(&b, "of %d", res.Count)
	return b.String()
}

func testRange(t *testing.T, _ context.Context, s kv.Store) {
	for _, k := range []string{"/p/b", "/p/a", "/p0", "/o", "/p/c/d", "/p/c"} {
		put(t, s, k, k[len(k)-1:], 0)
	}
	tests := []struct {
		opts kv.RangeOptions
		want string
	}{
		{kv.RangeOptions{Prefix: "/p/"}, "/p/a=a /p/b=b /p/c=c /p/c/d=d of 4"},
		{kv.RangeOptions{Prefix: "/p/", Limit: 2}, "/p/a=a /p/b=b of 4"},
		{kv.RangeOptions{Prefix: "/p/", Limit: 2, Start: "/p/b\x00"}, "/p/c=c /p/c/d=d of 2"},
		{kv.RangeOptions{Prefix: "/p/", Start: "/p/c/d\x00"}, "of 0"},
		{kv.RangeOptions{Prefix: "/p/", Start: "/a"}, "/p/a=a /p/b=b /p/c=c /p/c/d=d of 4"},
		{kv.RangeOptions{Prefix: "/q"}, "of 0"},
	}
	for _, tt := range tests {
		if got := list(t, s, tt.opts); got != tt.want {
			t.Errorf("Range(%+v) = %s, want %s", tt.opts, got, tt.want)
		}
	}
}

func testRangeInThePast(t *testing.T, ctx context.Context, s kv.Store) {
	r1 := put(t, s, "/a", "1", 0)
	r2 := put(t, s, "/b", "1", 0)
	r3 := put(t, s, "/a", "2", r1)
	r4 := remove(t, s, "/b", r2)
	for rev, want := range map[int64]string{
		r1: "/a=1 of 1", r2: "/a=1 /b=1 of 2", r3: "/a=2 /b=1 of 2", r4: "/a=2 of 1", 0: "/a=2 of 1",
	} {
		if got := list(t, s, kv.RangeOptions{Prefix: "/", Revision: rev}); got != want {
			t.Errorf("at %d: %s, want %s", rev, got, want)
		}
	}
	res, err := s.Range(ctx, kv.RangeOptions{Prefix: "/", Revision: r1})
	if err != nil || res.Revision != r4 {
		t.Errorf("a range of the past has revision %d, want the present %d (%v)", res.Revision, r4, err)
	}
	if _, err := s.Range(ctx, kv.RangeOptions{Prefix: "/", Revision: r4 + 1}); !errors.Is(err, kv.ErrFutureRevision) {
		t.Errorf("range in the future: %v", err)
	}
}

func testRevision(t *testing.T, ctx context.Context, s kv.Store) {
	for i := range 3 {
		want := put(t, s, fmt.Sprintf("/k%d", i), "", 0)
		if got, err := s.Revision(ctx); got < want || err != nil {
			t.Errorf("Revision after a write at %d = %d, %v", want, got, err)
		}
	}
}

func watch(t *testing.T, s kv.Store, prefix string, from int64) kv.Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), prefix, from)
	if err != nil {
		t.Fatalf("Watch(%q, %d): %v", prefix, from, err)
	}
	t.Cleanup(w.Stop)
	return w
}

// events reads n events, formatted as "revision:key=value" with "-" for a deletion.
func events(t *testing.T, ctx context.Context, w kv.Watch, n int) string {
	t.Helper()
	var out []string
	var last int64
	for len(out) < n {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("Next after %v: %v", out, err)
		}
		for _, e := range b.Events {
			if e.ModRevision < last || e.ModRevision > b.Revision {
				t.Errorf("event at %d after %d in batch %d", e.ModRevision, last, b.Revision)
			}
			last = e.ModRevision
			value := string(e.Value)
			if e.Deleted {
				value = "-"
			}
			out = append(out, fmt.Sprintf("%d:%s=%s", e.ModRevision, e.Key, value))
		}
	}
	return strings.Join(out, " ")
}

func testWatch(t *testing.T, ctx context.Context, s kv.Store) {
	r0 := put(t, s, "/p/before", "", 0)
	w := watch(t, s, "/p/", r0+1)
	r1 := put(t, s, "/p/a", "1", 0)
	put(t, s, "/q/a", "1", 0)
	r2 := put(t, s, "/p/a", "2", r1)
	r3 := remove(t, s, "/p/a", r2)
	want := fmt.Sprintf("%d:/p/a=1 %d:/p/a=2 %d:/p/a=-", r1, r2, r3)
	if got := events(t, ctx, w, 3); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	future := watch(t, s, "/p/", r3+2)
	put(t, s, "/p/b", "skipped", 0)
	r4 := put(t, s, "/p/c", "seen", 0)
	if got, want := events(t, ctx, future, 1), fmt.Sprintf("%d:/p/c=seen", r4); got != want {
		t.Errorf("watch from the future: %s, want %s", got, want)
	}
}

func testWatchFromThePast(t *testing.T, ctx context.Context, s kv.Store) {
	first, want := int64(0), []string{}
	for i := range 50 {
		r := put(t, s, fmt.Sprintf("/p/%02d", i), "v", 0)
		if i == 0 {
			first = r
		}
		want = append(want, fmt.Sprintf("%d:/p/%02d=v", r, i))
	}
	w := watch(t, s, "/p/", first)
	if got := events(t, ctx, w, 50); got != strings.Join(want, " ") {
		t.Errorf("got %s", got)
	}
}

func testWatchProgress(t *testing.T, ctx context.Context, s kv.Store) {
	r := put(t, s, "/p/a", "1", 0)
	w := watch(t, s, "/p/", r+1)
	target := put(t, s, "/q/a", "1", 0)
	for reached := int64(0); reached < target; {
		if err := w.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		// A store may leave a request unanswered: wait a little, then request progress again.
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		b, err := w.Next(short)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil || len(b.Events) > 0 {
			t.Fatalf("Next = %+v, %v", b, err)
		}
		reached = b.Revision
	}
}

func testWatchStop(t *testing.T, ctx context.Context, s kv.Store) {
	rev, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, s, "/p/", rev+1)
	done := make(chan error, 1)
	go func() {
		_, err := w.Next(ctx)
		done <- err
	}()
	w.Stop()
	w.Stop()
	if err := <-done; err == nil || ctx.Err() != nil {
		t.Errorf("Next after Stop: %v", err)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := watch(t, s, "/p/", rev+1).Next(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with an ended context: %v", err)
	}
}

func testCompact(t *testing.T, ctx context.Context, s kv.Store) {
	r1 := put(t, s, "/a", "1", 0)
	r2 := put(t, s, "/a", "2", r1)
	r3 := put(t, s, "/a", "3", r2)
	if err := s.Compact(ctx, r2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Range(ctx, kv.RangeOptions{Prefix: "/", Revision: r1}); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("range before the compaction: %v", err)
	}
	if got := list(t, s, kv.RangeOptions{Prefix: "/", Revision: r2}); got != "/a=2 of 1" {
		t.Errorf("range at the compaction: %s", got)
	}
	if _, err := watch(t, s, "/", r1).Next(ctx); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("watch from before the compaction: %v", err)
	}
	if got, want := events(t, ctx, watch(t, s, "/", r3), 1), fmt.Sprintf("%d:/a=3", r3); got != want {
		t.Errorf("watch after the compaction: %s, want %s", got, want)
	}
	if err := s.Compact(ctx, r2); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("second compaction at the same revision: %v", err)
	}
	if err := s.Compact(ctx, r3+10); !errors.Is(err, kv.ErrFutureRevision) {
		t.Errorf("compaction in the future: %v", err)
	}
}

func testTTL(t *testing.T, ctx context.Context, s kv.Store) {
	rev, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, s, "/", rev+1)
	write := func(key string, expect, ttl int64) kv.WriteResult {
		t.Helper()
		res, err := s.Put(ctx, key, []byte("v"), expect, ttl)
		if err != nil {
			t.Fatalf("Put(%q): %v", key, err)
		}
		return res
	}
	// A write without TTL removes the TTL of the previous write. On a slow machine the key may have
	// expired before the second write. In that case, repeat both writes.
	for {
		passing := write("/kept", 0, 1)
		if passing.OK && write("/kept", passing.Revision, 0).OK {
			break
		}
	}
	for _, key := range []string{"/a", "/b"} {
		if res := write(key, 0, 1); !res.OK {
			t.Fatalf("Put(%q) = %+v", key, res)
		}
	}
	gone := map[string]bool{} // keys that expire together may be deleted in any order
	for !gone["/a"] || !gone["/b"] {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Events {
			gone[e.Key] = e.Deleted
		}
	}
	if got := list(t, s, kv.RangeOptions{Prefix: "/"}); got != "/kept=v of 1" || gone["/kept"] {
		t.Errorf("left: %s", got)
	}
}

// testConcurrent increments one key by concurrent optimistic writes: no increment may be lost.
func testConcurrent(t *testing.T, ctx context.Context, s kv.Store) {
	const writers, each = 8, 20
	put(t, s, "/n", "", 0)
	errs := make(chan error, writers)
	for range writers {
		go func() { errs <- count(ctx, s, each) }()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	it, _, err := s.Get(ctx, "/n")
	if err != nil || len(it.Value) != writers*each {
		t.Errorf("counted %d, want %d (%v)", len(it.Value), writers*each, err)
	}
}

func count(ctx context.Context, s kv.Store, n int) error {
	for n > 0 {
		it, _, err := s.Get(ctx, "/n")
		if err != nil {
			return err
		}
		res, err := s.Put(ctx, "/n", append(append([]byte(nil), it.Value...), 'x'), it.ModRevision, 0)
		if err != nil {
			return err
		}
		if res.OK {
			n--
		}
	}
	return nil
}
