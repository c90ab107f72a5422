// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// event returns an encoded watch event with a pod, a decoder of events and a decoder of pods.
func event(tb testing.TB) (raw []byte, events runtime.Serializer, pods runtime.Decoder) {
	tb.Helper()
	n := negotiator{runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), v1.SchemeGroupVersion), newReader(tb)}
	pods, events, _, err := n.StreamDecoder(runtime.ContentTypeProtobuf, nil)
	if err != nil {
		tb.Fatal(err)
	}
	encoder, err := n.Encoder(runtime.ContentTypeProtobuf, nil)
	if err != nil {
		tb.Fatal(err)
	}
	pod, err := runtime.Encode(encoder, podOf("a", "1", "n"))
	if err != nil {
		tb.Fatal(err)
	}
	e := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: pod}}
	if raw, err = e.Marshal(); err != nil {
		tb.Fatal(err)
	}
	return raw, events, pods
}

// TestEventsAreNotCopied checks that the object bytes of a decoded event share the memory of the
// encoded event.
func TestEventsAreNotCopied(t *testing.T) {
	raw, events, pods := event(t)
	var got metav1.WatchEvent
	if _, _, err := events.Decode(raw, nil, &got); err != nil {
		t.Fatal(err)
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(got.Object.Raw)))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(raw)))
	if got.Type != "ADDED" || at < from || at >= from+uintptr(len(raw)) {
		t.Errorf("type %q, object of its own: %t", got.Type, at < from || at >= from+uintptr(len(raw)))
	}
	obj, err := runtime.Decode(pods, got.Object.Raw)
	if pod, ok := obj.(*v1.Pod); err != nil || !ok || pod.Name != "a" {
		t.Errorf("%+v, error %v", obj, err)
	}
}

func BenchmarkEvent(b *testing.B) {
	raw, events, pods := event(b)
	b.ReportAllocs()
	for b.Loop() {
		var got metav1.WatchEvent
		if _, _, err := events.Decode(raw, nil, &got); err != nil {
			b.Fatal(err)
		}
		if _, err := runtime.Decode(pods, got.Object.Raw); err != nil {
			b.Fatal(err)
		}
	}
}
