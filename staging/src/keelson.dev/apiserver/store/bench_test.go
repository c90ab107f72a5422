// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/api/clock"
)

// fill stores n things, distributed over the given number of nodes. Each has one of ten labels.
func fill(b testing.TB, e *env, n, nodes int) {
	b.Helper()
	for i := range n {
		obj := newThing(fmt.Sprintf("ns%d", i%20), fmt.Sprintf("t%d", i))
		obj.Node = fmt.Sprintf("n%d", i%nodes)
		obj.Labels = map[string]string{"app": fmt.Sprintf("a%d", i%10)}
		create(b, e.store, obj)
	}
	waitApplied(b, e.store)
}

func BenchmarkList10k(b *testing.B) {
	e := run(b, newMemory(b), clock.Real())
	fill(b, e, 10_000, 100)
	cases := map[string]struct {
		opts ListOptions
		want int
	}{
		"all":       {ListOptions{}, 10_000},
		"page":      {ListOptions{Limit: 500}, 500},
		"namespace": {ListOptions{Predicate: Predicate{Namespace: "ns3"}}, 500},
		"node":      {ListOptions{Predicate: Predicate{Fields: fields.OneTermEqualSelector("spec.nodeName", "n7")}}, 100},
		"label":     {ListOptions{Predicate: Predicate{Labels: labels.SelectorFromSet(labels.Set{"app": "a3"})}}, 1000},
	}
	for name, c := range cases {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page, err := e.store.List(b.Context(), c.opts)
				if err != nil || len(page.Records) != c.want {
					b.Fatal(len(page.Records), err)
				}
			}
		})
	}
}

// BenchmarkWatchFanOut measures an update, including the write to the memory store and the delivery
// to watchers. With byNode, one of the 500 watchers selects the update; otherwise all do.
func BenchmarkWatchFanOut(b *testing.B) {
	for _, indexed := range []bool{true, false} {
		b.Run(fmt.Sprintf("byNode=%t", indexed), func(b *testing.B) {
			e := run(b, newMemory(b), clock.Real())
			fill(b, e, 500, 500)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for i := range 500 {
				var p Predicate
				if indexed {
					p.Fields = fields.OneTermEqualSelector("spec.nodeName", fmt.Sprintf("n%d", i))
				}
				w, err := e.store.Watch(ctx, WatchOptions{Predicate: p, ResourceVersion: formatRevision(e.store.Stats().Revision)})
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer w.Stop()
					for {
						if _, err := w.Next(ctx); err != nil {
							return
						}
					}
				})
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				key := fmt.Sprintf("ns%d/t%d", n%500%20, n%500)
				update(b, e.store, key, func(o *thing) { o.Data = fmt.Sprint(n) })
			}
			waitApplied(b, e.store)
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	run1 := func(b *testing.B, e *env) {
		b.ReportAllocs()
		obj := newThing("ns", "t")
		create(b, e.store, obj)
		waitApplied(b, e.store)
		n := 0
		for b.Loop() {
			n++
			_, err := e.store.Update(b.Context(), "ns/t", func(_ context.Context, cur *Record) (Object, error) {
				next := newThing("ns", "t")
				next.Data = fmt.Sprint(n)
				return next, nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("memory", func(b *testing.B) { run1(b, run(b, newMemory(b), clock.Real())) })
	b.Run("etcd", func(b *testing.B) { run1(b, run(b, newEmbedded(b), clock.Real())) })
}

func BenchmarkGet(b *testing.B) {
	run1 := func(b *testing.B, e *env, rv string) {
		create(b, e.store, newThing("ns", "t"))
		waitApplied(b, e.store)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.store.Get(b.Context(), "ns/t", rv); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("any", func(b *testing.B) { run1(b, run(b, newMemory(b), clock.Real()), "0") })
	b.Run("etcd", func(b *testing.B) { run1(b, run(b, newEmbedded(b), clock.Real()), "") })
}

// BenchmarkInstall measures cache.install with 100,000 objects and one index. Readers have to wait
// while install runs.
func BenchmarkInstall(b *testing.B) {
	e := run(b, newMemory(b), clock.Real())
	c := e.store.cache
	records := make([]*Record, 100_000)
	for i := range records {
		attrs := Attrs{Fields: map[string]string{"spec.nodeName": fmt.Sprintf("n%d", i%1000)}}
		records[i] = c.newRecord(fmt.Sprintf("ns%02d/t%05d", i/5000, i), int64(i+1), make([]byte, 2000), attrs, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.mu.Lock()
		c.clearLocked()
		c.state, c.loaded = loading, make(chan struct{})
		gen := c.gen
		c.mu.Unlock()
		c.install(gen, records, int64(len(records)))
	}
}
