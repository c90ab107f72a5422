// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv/memory"
)

// cutting is a store whose watches fail with the error that the test sets.
type cutting struct {
	store.Interface
	cut chan error
}

func (c *cutting) Watch(ctx context.Context, o store.WatchOptions) (store.Watcher, error) {
	w, err := c.Interface.Watch(ctx, o)
	return &cuttingWatcher{w, c.cut}, err
}

type cuttingWatcher struct {
	store.Watcher
	cut chan error
}

// Next returns the test's error as soon as it is set.
func (w *cuttingWatcher) Next(ctx context.Context) ([]store.Event, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-w.cut:
			cancel(err)
		case <-done:
		}
	}()
	events, err := w.Watcher.Next(ctx)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return events, err
}

// TestFollow checks that a graph follows the pods of a store, and continues to do so after a watch
// has failed.
func TestFollow(t *testing.T) {
	for name, end := range map[string]error{
		"missed changes": apierrors.NewResourceExpired("too old"),
		"another error":  apierrors.NewServiceUnavailable("later"),
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testFollow(t, end) }) })
	}
}

func testFollow(t *testing.T, end error) {
	clk := clock.Real()
	ctx, stop := context.WithCancel(t.Context())
	backend := store.NewBackend(store.BackendConfig{KV: memory.New(clk), Clock: clk, Log: slog.New(slog.DiscardHandler)})
	backendDone := make(chan struct{})
	go func() {
		defer close(backendDone)
		_ = backend.Run(ctx)
	}()
	row := resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{
		Version: "v1", Resource: "pods", Kind: "Pod", StoragePrefix: "pods", Namespaced: true,
		Fields: func(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} },
	})
	pods := &cutting{store.New(store.Config{
		Backend: backend, Prefix: "pods", GroupResource: row.GroupResource(),
		Codec: registry.Codec(row), Attrs: registry.Attrs(row),
	}), make(chan error)}
	write := func(name, node string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		p.Spec.NodeName, p.Spec.ServiceAccountName = node, "of-"+name
		if _, err := pods.Create(ctx, "ns/"+name, p, 0); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		if _, err := pods.Delete(ctx, "ns/"+name, nil); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "n1")
	write("b", "n1")
	write("unbound", "")
	const many = 100
	for i := range many {
		write(fmt.Sprint("many-", i), "n2")
	}

	g := NewGraph()
	f := &Pods{Graph: g, Store: func() store.Reader { return pods }, Clock: clk, Log: slog.New(slog.DiscardHandler)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	reaches := func(step string, names ...string) {
		t.Helper()
		synctest.Wait()
		have := map[string]bool{}
		for _, n := range names {
			have[n] = true
		}
		for _, n := range []string{"a", "b", "c", "unbound"} {
			if got := g.reaches("n1", object{serviceAccount, "ns", "of-" + n}); got != have[n] {
				t.Errorf("%s: node reaches what %s refers to: %t", step, n, got)
			}
		}
	}
	reaches("at the start", "a", "b")
	for i := range many {
		if !g.reaches("n2", object{serviceAccount, "ns", fmt.Sprint("of-many-", i)}) {
			t.Errorf("pod %d of many has not been read", i)
		}
	}
	if !f.Synced() {
		t.Error("not synced")
	}
	write("c", "n1")
	remove("a")
	reaches("followed", "b", "c")

	pods.cut <- end // the watch fails, and the test deletes a pod before the next watch starts
	remove("b")
	clk.Sleep(2 * followAgain)
	reaches("after the watch has ended", "c")
	stop()
	<-done
	<-backendDone
}
