// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// mortal is a store that simulates a server that is killed: it allows left writes of pods, and then
// all writes fail.
type mortal struct {
	kv.Store
	left  atomic.Int64 // number of further writes of pods that succeed; if negative, all writes fail
	small bool         // whether transactions with more than kv.MaxChanges changes are rejected
}

var errDead = errors.New("the API server is dead")

func (m *mortal) write(key string, do func() (kv.WriteResult, error)) (kv.WriteResult, error) {
	if strings.HasPrefix(key, "/registry/pods/") && m.left.Add(-1) < 0 || m.left.Load() < 0 {
		return kv.WriteResult{}, errDead
	}
	return do()
}

func (m *mortal) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	return m.write(key, func() (kv.WriteResult, error) { return m.Store.Put(ctx, key, value, expect, ttl, conditions...) })
}

func (m *mortal) WriteAll(ctx context.Context, changes []kv.Change) (kv.WriteResult, error) {
	if m.small && len(changes) > kv.MaxChanges {
		return kv.WriteResult{}, kv.ErrTooLarge
	}
	return m.write(changes[0].Key, func() (kv.WriteResult, error) { return m.Store.WriteAll(ctx, changes) })
}

const immortal = 1 << 40

// gangOn creates pods, and returns a batch that binds them all to node n.
func gangOn(t *testing.T, c kubernetes.Interface, pods int) v1alpha1.BindingBatch {
	t.Helper()
	ctx := t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	batch := v1alpha1.BindingBatch{AllOrNothing: true}
	for i := range pods {
		pod, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		batch.Bindings = append(batch.Bindings, v1alpha1.Binding{Namespace: "default", Name: pod.Name,
			UID: pod.UID, Node: "n"})
	}
	return batch
}

func boundTo(t *testing.T, c kubernetes.Interface, node string) int {
	t.Helper()
	list, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// TestGangSurvivesTheServer stops the API server before and after its first write of pods. In both
// cases, either all pods of a batch with AllOrNothing must be bound, or none.
func TestGangSurvivesTheServer(t *testing.T) {
	const pods = 8
	under := memory.New(clock.Real())
	t.Cleanup(func() { _ = under.Close() })
	first := testserver.Start(t, testserver.Options{KV: under})
	batch := gangOn(t, first.Client, pods)
	for _, writes := range []int64{0, 1} {
		store := &mortal{Store: under}
		store.left.Store(immortal)
		s := testserver.Start(t, testserver.Options{KV: store, Dir: first.Dir})
		store.left.Store(writes)
		body, err := json.Marshal(batch)
		if err != nil {
			t.Fatal(err)
		}
		// The request fails if the store fails first.
		_, _ = s.Client.CoreV1().RESTClient().Post().AbsPath(v1alpha1.BatchPath).SetHeader("Content-Type",
			"application/json").Body(body).DoRaw(t.Context())
		store.left.Store(-1)
		want := 0
		if writes > 0 {
			want = pods
		}
		if n := boundTo(t, first.Client, "n"); n != want {
			t.Errorf("dead after %d writes: %d of %d pods are bound, want %d", writes, n, pods, want)
		}
	}
}

// TestGangOnASmallStore checks a batch with AllOrNothing that is too large for one transaction. If
// one pod does not exist, no pod is bound. Otherwise all are bound.
func TestGangOnASmallStore(t *testing.T) {
	under := memory.New(clock.Real())
	t.Cleanup(func() { _ = under.Close() })
	store := &mortal{Store: under, small: true}
	store.left.Store(immortal)
	c := testserver.Start(t, testserver.Options{KV: store}).Client
	batch := gangOn(t, c, kv.MaxChanges+2)
	whole := batch.Bindings
	batch.Bindings = append(whole[:len(whole):len(whole)],
		v1alpha1.Binding{Namespace: "default", Name: "absent", Node: "n"})
	sendBatch(t, c, &batch)
	if n := boundTo(t, c, "n"); n != 0 {
		t.Errorf("%d pods are bound beside one that is absent", n)
	}
	batch.Bindings = whole
	sendBatch(t, c, &batch)
	if n := boundTo(t, c, "n"); n != len(whole) {
		t.Errorf("%d of %d pods are bound", n, len(whole))
	}
}

// TestGangNamesAPodTwice checks that a batch with AllOrNothing is rejected if it contains a pod
// twice.
func TestGangNamesAPodTwice(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	batch := gangOn(t, c, 2)
	batch.Bindings = append(batch.Bindings, batch.Bindings[0])
	if r := sendBatch(t, c, &batch).Results; r[2].Code != http.StatusBadRequest ||
		r[0].Code != http.StatusConflict || boundTo(t, c, "n") != 0 {
		t.Errorf("%+v", r)
	}
}
