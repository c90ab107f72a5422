// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"keelson.dev/apiserver/wire"
)

// TestEndNow compares the bytes that EndNow returns with the encoding of the changed object.
func TestEndNow(t *testing.T) {
	header := wire.NewHeader("v1", "Pod")
	decode := func(data []byte) *corev1.Pod {
		e, err := wire.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		pod := new(corev1.Pod)
		if err := pod.Unmarshal(e.Raw); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	rapid.Check(t, func(t *rapid.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}},
			Spec: corev1.PodSpec{NodeName: "n"}}
		grace := rapid.Int64Range(0, 1<<20).Draw(t, "grace")
		asked := time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "asked"), 0)
		if rapid.Bool().Draw(t, "marked") {
			pod.DeletionTimestamp = new(metav1.NewTime(asked.Add(time.Duration(grace) * time.Second)))
		}
		if rapid.Bool().Draw(t, "graceful") {
			pod.DeletionGracePeriodSeconds = &grace
		}
		stored, err := header.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		before := decode(stored)
		got, ok := wire.EndNow(stored)
		if want := pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && grace > 0; ok != want {
			t.Fatalf("%v, want %v", ok, want)
		}
		if !equality.Semantic.DeepEqual(decode(stored), before) {
			t.Fatal("the stored bytes have changed")
		}
		if !ok {
			return
		}
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(asked)), new(int64(0))
		if ended := decode(got); !equality.Semantic.DeepEqual(ended, pod) || ended.DeletionGracePeriodSeconds == nil {
			t.Fatalf("%+v, want %+v", ended.ObjectMeta, pod.ObjectMeta)
		}
		for n := range stored {
			wire.EndNow(stored[:n]) // the result does not matter, but it must not panic
		}
	})
}
