// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package mark

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/restorehold"
)

// TestMark marks the store of an API server that has stopped, and checks the objects with the next API
// server: only the marks differ, objects in several pages have them, and a second run changes nothing.
func TestMark(t *testing.T) {
	const sets, others = 2*pageSize + 3, 5
	ctx := t.Context()
	first := testserver.Start(t, testserver.Options{})
	if _, err := first.Client.CoreV1().ServiceAccounts("default").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	yes := true
	for i := range sets + others {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("db-%d", i), Labels: map[string]string{"app": "db"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "1", Controller: &yes}}},
			Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "i"}}}}
		if i >= sets {
			p.OwnerReferences[0].Kind = "ReplicaSet"
		}
		if _, err := first.Client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n2 := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	restorehold.Fence(n2, time.Unix(3, 0))
	for _, n := range []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, n2} {
		if _, err := first.Client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before := list(t, first)
	first.Stop(t)

	o := Options{Prefix: "registry", Epoch: 7, AlsoNodes: []string{"n1", "n3"}, Now: time.Unix(1000, 5)}
	if err := Run(ctx, first.KV, o); err != nil {
		t.Fatal(err)
	}
	revision := revisionOf(t, first.KV)
	if err := Run(ctx, first.KV, o); err != nil || revisionOf(t, first.KV) != revision {
		t.Errorf("again: %v, revision %d, before %d", err, revisionOf(t, first.KV), revision)
	}

	second := testserver.Start(t, testserver.Options{KV: first.KV, Dir: first.Dir})
	held := 0
	for name, got := range list(t, second) {
		if restorehold.IsHeld(&got) {
			held++
		}
		if restorehold.IsHeld(&got) != restorehold.HasIdentity(&got) {
			t.Errorf("%s is held: %v", name, restorehold.IsHeld(&got))
		}
		delete(got.Labels, restorehold.Held)
		want := before[name]
		got.ResourceVersion, want.ResourceVersion = "", ""
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s has changed", name)
		}
	}
	if held != sets {
		t.Errorf("%d held pods, want %d", held, sets)
	}
	nodes, err := second.Client.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: restorehold.Unreported + "=7"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
		_, placeholder := n.Annotations[restorehold.Placeholder]
		if !restorehold.Waiting(&n) || placeholder != (n.Name == "n3") || placeholder != n.Spec.Unschedulable || n.UID == "" {
			t.Errorf("%+v", n)
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == v1.TaintNodeOutOfService {
				t.Errorf("%s has the taint of a fence", n.Name)
			}
		}
	}
	if !slices.Equal(names, []string{"n1", "n2", "n3"}) {
		t.Errorf("nodes %v", names)
	}
}

// list returns the pods of a server by name.
func list(t *testing.T, s *testserver.Server) map[string]v1.Pod {
	t.Helper()
	pods, err := s.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.Pod{}
	for _, p := range pods.Items {
		out[p.Name] = p
	}
	return out
}

func revisionOf(t *testing.T, store kv.Store) int64 {
	t.Helper()
	r, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestErrors checks the errors for objects that cannot be marked and for invalid names, and that a second
// run completes what an earlier one has begun.
func TestErrors(t *testing.T) {
	ctx := t.Context()
	store := newStore(t)
	put := func(key string, value []byte) {
		t.Helper()
		item, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		expect := int64(0)
		if item != nil {
			expect = item.ModRevision
		}
		if r, err := store.Put(ctx, key, value, expect, 0); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	node := []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`) // an older form of storage
	put("/x/minions/n1", node)
	put("/x/minions/n2", []byte("k8s:enc:aescbc:v1:k:x"))
	put("/x/minionsother", []byte("not a node"))
	o := Options{Prefix: "/x", Epoch: 7}
	if err := Run(ctx, store, o); !errors.Is(err, errEncrypted) || !strings.Contains(err.Error(), "/x/minions/n2") {
		t.Errorf("encrypted: %v", err)
	}
	put("/x/minions/n2", node)
	if err := Run(ctx, store, o); err != nil {
		t.Errorf("second run: %v", err)
	}
	for _, key := range []string{"/x/minions/n1", "/x/minions/n2"} {
		item, _, err := store.Get(ctx, key)
		n := &v1.Node{}
		if err == nil {
			err = decode(item.Value, n)
		}
		if err != nil || n.Labels[restorehold.Unreported] != "7" {
			t.Errorf("%s: %v, %v", key, n, err)
		}
	}
	o.AlsoNodes = []string{"a/b"}
	if err := Run(ctx, store, o); err == nil || !strings.Contains(err.Error(), `node "a/b": `) {
		t.Errorf("invalid name: %v", err)
	}
}

// TestMachines checks that the specifications of machines are cleared, so that an upgrade does not begin again,
// and that the other keys of the group remain as they are.
func TestMachines(t *testing.T) {
	const machine = `{"apiVersion":"machines.keelson.dev/v1alpha1","kind":"Machine","metadata":{"generation":%s,` +
		`"name":"m"},"spec":%s,"status":{"observedGeneration":3,"release":"1"}}` + "\n"
	contents := map[string]struct{ before, after string }{
		"machines/m1": {fmt.Sprintf(machine, "3", `{"release":"2","request":"x"}`), fmt.Sprintf(machine, "4", "{}")},
		"machines/m2": {fmt.Sprintf(machine, "3", "{}"), fmt.Sprintf(machine, "3", "{}")},
		"epoch":       {"7", "7"},
	}
	store := newStore(t)
	for name, c := range contents {
		if _, err := store.Put(t.Context(), "/r/machines.keelson.dev/"+name, []byte(c.before), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Run(t.Context(), store, Options{Prefix: "r", Epoch: 7}); err != nil {
			t.Fatal(err)
		}
		for name, c := range contents {
			item, _, err := store.Get(t.Context(), "/r/machines.keelson.dev/"+name)
			if err != nil || string(item.Value) != c.after {
				t.Errorf("%s: %s, %v; want %s", name, item.Value, err, c.after)
			}
		}
	}
}

// changing is a store that another client changes between each read and the next write.
type changing struct{ kv.Store }

func (c changing) WriteAll(context.Context, []kv.Change) (kv.WriteResult, error) {
	return kv.WriteResult{}, nil
}

// TestChanges checks that Run fails if another client uses the store, and that large objects are written
// in several writes.
func TestChanges(t *testing.T) {
	store := newStore(t)
	text := strings.Repeat("x", maxBytes/2)
	for i := range 5 {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Annotations: map[string]string{"a": text}}}
		if err := create(t.Context(), store, "/r/minions/"+n.Name, n); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Prefix: "r", Epoch: 7}
	if err := Run(t.Context(), changing{store}, o); !errors.Is(err, errChanged) {
		t.Errorf("changed: %v", err)
	}
	before := revisionOf(t, store)
	if err := Run(t.Context(), store, o); err != nil || revisionOf(t, store) != before+5 {
		t.Errorf("%v, %d writes", err, revisionOf(t, store)-before)
	}
}

func newStore(t *testing.T) kv.Store {
	t.Helper()
	store := memory.New(clock.Real())
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
