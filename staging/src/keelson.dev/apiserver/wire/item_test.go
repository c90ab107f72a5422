// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"keelson.dev/apiserver/wire"
)

// TestSplice checks that Splice gives the same bytes as SetResourceVersion.
func TestSplice(t *testing.T) {
	header := wire.NewHeader("v1", "Thing")
	rapid.Check(t, func(t *rapid.T) {
		stored, err := header.Marshal(genObject().Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		rev := rapid.Int64Range(0, 1<<62).Draw(t, "revision")
		want, ok := wire.SetResourceVersion(stored, rev)
		if !ok {
			t.Fatal("not spliced")
		}
		item, ok := header.Splice(stored, rev)
		if !ok {
			t.Fatal("no item")
		}
		if got := header.AppendItem([]byte("x"), &item); string(got) != "x"+string(want) {
			t.Fatalf("item:\n%q\nenvelope:\n%q", got, want)
		}
		e, err := wire.Parse(want)
		if err != nil || item.Size() != len(e.Raw) || !bytes.Equal(item.Append(nil), e.Raw) {
			t.Fatalf("message %q, %v; item of %d bytes", e.Raw, err, item.Size())
		}
		if got := header.AppendWatchItem(nil, "MODIFIED", &item); !bytes.Equal(got,
			wire.AppendWatchEvent(nil, "MODIFIED", want)) {
			t.Fatalf("frame %q", got)
		}
	})
}

// TestSpliceRefuses checks that Splice rejects envelopes of other kinds, truncated envelopes and
// trailing bytes.
func TestSpliceRefuses(t *testing.T) {
	header := wire.NewHeader("v1", "ConfigMap")
	stored, err := header.Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := wire.NewHeader("v1", "Secret").Splice(stored, 1); ok {
		t.Error("another kind")
	}
	for n := range stored {
		if _, ok := header.Splice(stored[:n], 1); ok {
			t.Errorf("cut at %d", n)
		}
	}
	if _, ok := header.Splice(append(bytes.Clone(stored), 0), 1); ok {
		t.Error("something after the end")
	}
}

// FuzzSplice checks on arbitrary bytes that Splice gives the same bytes as SetResourceVersion.
func FuzzSplice(f *testing.F) {
	header := wire.NewHeader("v1", "ConfigMap")
	seed, err := header.Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, int64(1))
	f.Fuzz(func(t *testing.T, data []byte, rev int64) {
		item, ok := header.Splice(data, rev)
		if !ok || rev < 0 {
			return
		}
		want, ok := wire.SetResourceVersion(data, rev)
		if got := header.AppendItem(nil, &item); !ok || !bytes.Equal(got, want) {
			t.Fatalf("%q became %q, want %q", data, got, want)
		}
	})
}
