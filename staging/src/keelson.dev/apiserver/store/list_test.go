// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

func token(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }

func TestBadListOptions(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	good := token(`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/a\u0000"}`)
	tests := map[string]struct {
		opts ListOptions
		want string
	}{
		"revision": {ListOptions{ResourceVersion: "x"}, `invalid resource version: resourceVersion: Invalid ` +
			`value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		"match": {ListOptions{ResourceVersion: "1", Match: "Newest"}, "unknown ResourceVersionMatch value: Newest"},
		"both": {ListOptions{ResourceVersion: "1", Continue: good},
			"specifying resource version is not allowed when using continue"},
		"base64": {ListOptions{Continue: "*"},
			"invalid continue token: continue key is not valid: illegal base64 data at input byte 0"},
		"version": {ListOptions{Continue: token(`{"v":"v2","rv":5,"start":"a"}`)},
			"invalid continue token: continue key is not valid: server does not recognize this encoded version v2"},
		"zero": {ListOptions{Continue: token(`{"v":"meta.k8s.io/v1","start":"a"}`)},
			"invalid continue token: continue key is not valid: incorrect encoded start resourceVersion " +
				"(version meta.k8s.io/v1)"},
		"start": {ListOptions{Continue: token(`{"v":"meta.k8s.io/v1","rv":5}`)},
			"invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"},
		"up": {ListOptions{Continue: token(`{"v":"meta.k8s.io/v1","rv":5,"start":"../secrets/a"}`)},
			"invalid continue token: continue key is not valid: ../secrets/a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := e.store.List(patient(t), tt.opts)
			if !apierrors.IsBadRequest(err) || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestContinueTokenIsKubernetes(t *testing.T) {
	const (
		want = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAsInN0YXJ0IjoiL2FcdTAwMDAifQ"
		// noSlash is the token of the same key, but without the slash at its beginning.
		noSlash = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAsInN0YXJ0IjoiYVx1MDAwMCJ9"
	)
	if got := encodeContinue("/a\x00", 10); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, token := range []string{want, noSlash} {
		if key, rev, err := decodeContinue(token, "ns/"); err != nil || key != "ns/a\x00" || rev != 10 {
			t.Errorf("decoded %q at %d, %v", key, rev, err)
		}
	}
}

// TestContinueAfterCompaction compacts the state of a list between two pages, and checks that the
// error has a token that continues with the present state.
func TestContinueAfterCompaction(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		e.backend.limits = windowLimits{min: 1, max: 1, bytes: 1 << 30}
		for i := range 4 {
			create(t, e.store, newThing("ns", fmt.Sprintf("t%d", i)))
		}
		ctx := patient(t)
		first, err := e.store.List(ctx, ListOptions{Predicate: Predicate{Namespace: "ns"}, Limit: 2})
		if err != nil || len(first.Records) != 2 {
			t.Fatal(first, err)
		}
		var last *Record
		for i := range 5 {
			last = update(t, e.store, "ns/t3", func(o *thing) { o.Data = fmt.Sprint(i) })
		}
		waitApplied(t, e.store)
		if err := e.kv.Compact(ctx, last.Revision); err != nil {
			t.Fatal(err)
		}
		opts := ListOptions{Predicate: Predicate{Namespace: "ns"}, Limit: 2, Continue: first.Continue}
		_, err = e.store.List(ctx, opts)
		var status *apierrors.StatusError
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.ErrStatus.Continue == "" ||
			!strings.HasPrefix(err.Error(), "The provided continue parameter is too old") {
			t.Fatalf("after the compaction: %v", err)
		}
		opts.Continue = status.ErrStatus.Continue
		page, err := e.store.List(ctx, opts)
		if err != nil || len(page.Records) != 2 || page.Records[0].Key != "ns/t2" ||
			page.Revision < last.Revision || page.Continue != "" {
			t.Errorf("inconsistent continuation: %+v, %v", page, err)
		}
		_, err = e.store.List(ctx, ListOptions{ResourceVersion: formatRevision(first.Revision),
			Match: metav1.ResourceVersionMatchExact})
		if !apierrors.IsResourceExpired(err) || err.Error() != "The resourceVersion for the provided list is too old." {
			t.Errorf("exact list after the compaction: %v", err)
		}
	})
}

// TestIdleContinuationExpires checks that a continue token expires with a compaction even if no
// object has changed since the first page.
func TestIdleContinuationExpires(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		for i := range 4 {
			create(t, e.store, newThing("ns", fmt.Sprintf("t%d", i)))
		}
		ctx := patient(t)
		first, err := e.store.List(ctx, ListOptions{Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		opts := ListOptions{Limit: 2, Continue: first.Continue}
		if _, err := e.store.List(ctx, opts); err != nil {
			t.Fatal("before the compaction:", err)
		}
		compactor := kv.Compactor{Store: e.kv, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
			Compacted: e.backend.Compacted}
		for range 2 { // the second step compacts to the revision of the first step
			if _, err := e.store.List(ctx, opts); err != nil {
				t.Fatal("before the compaction:", err)
			}
			if err := compactor.Step(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.store.List(ctx, opts); !apierrors.IsResourceExpired(err) {
			t.Errorf("after the compaction: %v", err)
		}
	})
}

func TestUndecodableObject(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	if _, err := e.kv.Put(t.Context(), "/registry/things/ns/bad", []byte("{"), 0, 0); err != nil {
		t.Fatal(err)
	}
	page, err := e.store.List(patient(t), ListOptions{})
	if err != nil || len(page.Records) != 1 {
		t.Fatal(page, err)
	}
	if _, err := page.Records[0].Shared(); err == nil {
		t.Error("decoded")
	}
	if _, err := e.store.Delete(t.Context(), "ns/bad", nil); err != nil {
		t.Error("cannot be deleted:", err)
	}
}

func TestErrorsNameTheObject(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	create(t, e.store, newThing("ns", "t"))
	_, created := e.store.Create(t.Context(), "ns/t", newThing("ns", "t"), 0)
	_, got := e.store.Get(patient(t), "ns/x", "")
	_, deleted := e.store.Delete(patient(t), "ns/x", nil)
	set := newThing("ns", "y")
	set.ResourceVersion = "7"
	_, versioned := e.store.Create(t.Context(), "ns/y", set, 0)
	_, outside := e.store.Get(patient(t), "../x", "")
	for _, tt := range []struct {
		err    error
		is     func(error) bool
		wanted string
	}{
		{created, apierrors.IsAlreadyExists, `things.example.com "t" already exists`},
		{got, apierrors.IsNotFound, `things.example.com "x" not found`},
		{deleted, apierrors.IsNotFound, `things.example.com "x" not found`},
		{versioned, apierrors.IsInternalError,
			"Internal error occurred: resourceVersion should not be set on objects to be created"},
		{outside, apierrors.IsInternalError, `Internal error occurred: invalid key: "../x"`},
	} {
		if !tt.is(tt.err) || tt.err.Error() != tt.wanted {
			t.Errorf("got %v, want %s", tt.err, tt.wanted)
		}
	}
}

func TestEncodingsAreMadeOnceAndForgotten(t *testing.T) {
	e, stop := boot(t, newMemory(t), clock.Real(), "/registry", func(b *Backend) { b.forms = newFormBudget(1000) })
	defer stop()
	r := create(t, e.store, newThing("ns", "t"))
	r.forget()
	form, made := Form{MediaType: "application/json"}, 0
	encode := func(*Record) ([]byte, error) {
		made++
		return make([]byte, 400), nil
	}
	get := func(r *Record, f Form) {
		if _, err := r.Encoded(f, encode); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { get(r, form) })
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("encoded %d times", made)
	}
	fail := errors.New("no")
	if _, err := r.Encoded(Form{Variant: "bad"},
		func(*Record) ([]byte, error) { return nil, fail }); !errors.Is(err, fail) {
		t.Errorf("failed encoding: %v", err)
	}
	other := NewRecord("ns/u", 1, nil, Attrs{}, thingCodec{}, nil)
	other.budget = e.backend.forms
	for i := range 3 { // these objects exceed the budget, so the oldest encoding is dropped
		get(other, Form{Variant: fmt.Sprint(i)})
	}
	if _, ok := r.form(form); ok {
		t.Error("an encoding is kept over the budget")
	}
	if b := e.backend.forms; b.spent > b.max {
		t.Errorf("spent %d of %d", b.spent, b.max)
	}
}

// TestRevisionReads checks that callers share reads of the revision, but that no caller gets the
// result of a read that began before it called.
func TestRevisionReads(t *testing.T) {
	var mu sync.Mutex
	rev, reads := int64(0), 0
	gate := make(chan struct{})
	r := revisionReader{read: func(ctx context.Context) (int64, error) {
		mu.Lock()
		reads++
		got := rev
		mu.Unlock()
		select {
		case <-gate:
			return got, ctx.Err()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}}
	waiting := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.next == nil {
			return 0
		}
		return r.next.waiting
	}
	results := make(chan int64, 100)
	call := func(ctx context.Context) {
		got, err := r.current(ctx)
		if err != nil {
			got = -1
		}
		results <- got
	}
	busy := func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.busy }
	begun := func() bool { mu.Lock(); defer mu.Unlock(); return reads > 0 }
	go call(t.Context())
	for !begun() {
		runtime.Gosched()
	}
	mu.Lock()
	rev = 7 // a write happens while the first read is in progress
	mu.Unlock()
	gone, cancel := context.WithCancel(t.Context())
	for range 20 {
		go call(t.Context())
	}
	go call(gone)
	for waiting() < 21 {
		runtime.Gosched()
	}
	cancel()
	if got := <-results; got != -1 {
		t.Errorf("a cancelled caller got %d", got)
	}
	close(gate)
	old := 0
	for range 21 {
		switch got := <-results; got {
		case 0:
			old++
		case 7:
		default:
			t.Errorf("got %d", got)
		}
	}
	if old != 1 || reads != 2 {
		t.Errorf("%d results from before the write, %d reads", old, reads)
	}
	// The context of all waiting callers is cancelled. A later caller must get a result all the
	// same.
	gate = make(chan struct{})
	gone, cancel = context.WithCancel(t.Context())
	go call(gone)
	for !busy() {
		runtime.Gosched()
	}
	for range 3 {
		go call(gone)
	}
	for waiting() < 3 {
		runtime.Gosched()
	}
	cancel()
	for range 4 {
		<-results
	}
	close(gate)
	if got, err := r.current(patient(t)); got != 7 || err != nil {
		t.Errorf("after all were cancelled: %d, %v", got, err)
	}
}

// TestListOfAnyAge checks that a list at revision 0 ignores its limit, as in Kubernetes.
func TestListOfAnyAge(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	fill(t, e, 10, 2)
	for rv, want := range map[string]int{"0": 10, "": 3} {
		page, err := e.store.List(t.Context(), ListOptions{ResourceVersion: rv, Limit: 3})
		if err != nil || len(page.Records) != want || (page.Continue == "") != (want == 10) {
			t.Errorf("revision %q: %d records, %q, %v", rv, len(page.Records), page.Continue, err)
		}
		if page.Continue != "" {
			rest, err := e.store.List(t.Context(), ListOptions{ResourceVersion: "0", Limit: 3, Continue: page.Continue})
			if err != nil || len(rest.Records) != 7 || rest.Continue != "" {
				t.Errorf("the rest: %+v, %v", rest, err)
			}
		}
	}
}
