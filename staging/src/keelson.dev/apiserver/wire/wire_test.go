// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"keelson.dev/apiserver/wire"
)

type object interface {
	metav1.Object
	wire.Message
}

// genMeta draws a random ObjectMeta.
func genMeta() *rapid.Generator[metav1.ObjectMeta] {
	return rapid.Custom(func(t *rapid.T) metav1.ObjectMeta {
		m := metav1.ObjectMeta{
			Name: rapid.String().Draw(t, "name"), GenerateName: rapid.String().Draw(t, "generateName"),
			Namespace: rapid.String().Draw(t, "namespace"), UID: types.UID(rapid.String().Draw(t, "uid")),
			Generation: rapid.Int64().Draw(t, "generation"), Finalizers: rapid.SliceOf(rapid.String()).Draw(t, "finalizers"),
			Labels:      rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "labels"),
			Annotations: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "annotations"),
		}
		if rapid.Bool().Draw(t, "deleted") {
			m.DeletionTimestamp = &metav1.Time{}
			m.DeletionGracePeriodSeconds = new(int64(30))
		}
		for range rapid.IntRange(0, 3).Draw(t, "owners") {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Name: rapid.String().Draw(t, "owner")})
		}
		return m
	})
}

func genObject() *rapid.Generator[object] {
	return rapid.Custom(func(t *rapid.T) object {
		meta := genMeta().Draw(t, "meta")
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return &corev1.ConfigMap{ObjectMeta: meta, Data: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "data")}
		case 1:
			return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: rapid.String().Draw(t, "node")}}
		}
		return &appsv1.Deployment{ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: new(rapid.Int32().Draw(t, "replicas"))}}
	})
}

// TestSetResourceVersion compares the result with that of decoding, changing and encoding the
// object.
func TestSetResourceVersion(t *testing.T) {
	header := wire.NewHeader("v1", "Thing")
	rapid.Check(t, func(t *rapid.T) {
		obj := genObject().Draw(t, "object")
		stored, err := header.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(stored)
		rev := rapid.Int64Range(0, 1<<62).Draw(t, "revision")
		got, ok := wire.SetResourceVersion(stored, rev)
		if !ok {
			t.Fatal("not spliced")
		}
		if rev != 0 {
			obj.SetResourceVersion(strconv.FormatInt(rev, 10))
		}
		want, err := header.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("splice:\n%q\nencode:\n%q", got, want)
		}
		if !bytes.Equal(stored, before) {
			t.Fatal("the stored bytes were changed")
		}
		if again, ok := wire.SetResourceVersion(got, 7); !ok {
			t.Fatal("not spliced again")
		} else if cleared, ok := wire.SetResourceVersion(again, 0); !ok || !bytes.Equal(cleared, before) {
			t.Fatal("clearing does not give back the stored bytes")
		}
	})
}

// FuzzSetResourceVersion checks on arbitrary bytes that nothing panics, and that each result is an
// envelope of the same kind.
func FuzzSetResourceVersion(f *testing.F) {
	seed, err := wire.NewHeader("v1", "ConfigMap").Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, int64(1))
	f.Add([]byte("k8s\x00"), int64(1))
	f.Add([]byte("k8s\x00\x12\x03\x0a\x01\x32"), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, rev int64) {
		out, ok := wire.SetResourceVersion(data, rev)
		if !ok {
			return
		}
		a, errA := wire.Parse(data)
		b, errB := wire.Parse(out)
		if errA != nil || errB != nil || a.Kind != b.Kind || a.APIVersion != b.APIVersion {
			t.Fatalf("%q became %q", data, out)
		}
	})
}

// TestUID compares the uid found in the bytes with that of the object.
func TestUID(t *testing.T) {
	header := wire.NewHeader("v1", "Thing")
	rapid.Check(t, func(t *rapid.T) {
		obj := genObject().Draw(t, "object")
		stored, err := header.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		uid, ok := wire.UID(stored)
		if want := string(obj.GetUID()); uid != want || ok != (want != "") {
			t.Fatalf("got %q, %v; want %q", uid, ok, want)
		}
	})
	if _, ok := wire.UID([]byte("{}")); ok {
		t.Error("found a uid in JSON")
	}
}

// TestList compares a list assembled from encoded items with the output of the generated encoder.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "12",
			Continue: rapid.String().Draw(t, "continue")}}
		var raws [][]byte
		for range rapid.IntRange(0, 5).Draw(t, "items") {
			item := corev1.ConfigMap{ObjectMeta: genMeta().Draw(t, "meta")}
			list.Items = append(list.Items, item)
			raw, err := item.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			raws = append(raws, raw)
		}
		meta, err := list.ListMeta.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		header := wire.NewHeader("v1", "ConfigMapList")
		size := wire.ListSize(len(meta), func(yield func(int) bool) {
			for _, raw := range raws {
				if !yield(len(raw)) {
					return
				}
			}
		})
		got := wire.AppendListMeta(header.Begin(nil, size), meta)
		for _, raw := range raws {
			got = append(wire.AppendItemHeader(got, len(raw)), raw...)
		}
		got = header.End(got)
		want, err := header.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("spliced:\n%q\nencoded:\n%q", got, want)
		}
	})
}

// TestWatchEvent compares a frame with the output of the generated encoder.
func TestWatchEvent(t *testing.T) {
	object, err := wire.NewHeader("v1", "ConfigMap").Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	event := metav1.WatchEvent{Type: "ADDED"}
	event.Object.Raw = object
	want, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := wire.AppendWatchEvent(nil, "ADDED", object)
	if n := binary.BigEndian.Uint32(got); int(n) != len(want) || !bytes.Equal(got[4:], want) {
		t.Errorf("frame %q, want %q", got, want)
	}
}

func TestMetadata(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}}
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	meta, err := wire.Metadata(raw)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pod.ObjectMeta.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(meta, want) {
		t.Errorf("metadata %q, want %q", meta, want)
	}
	if _, err := wire.Metadata(nil); err == nil {
		t.Error("no error for an empty message")
	}
}
