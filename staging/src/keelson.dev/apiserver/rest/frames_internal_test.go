// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"testing"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
)

// TestFrames checks that an event for several watches is encoded once for each form and event type.
// Frames must not be kept if there are fewer watches than shareFrom, if they are large, or after all
// watches have ended.
func TestFrames(t *testing.T) {
	var f frames
	made := 0
	get := func(ev store.Event, out negotiate.Output, size int) []byte {
		t.Helper()
		data, err := f.of(&ev, out, func() ([]byte, error) {
			made++
			return bytes.Repeat([]byte{byte(made)}, size), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ends := []func(){f.begin(), f.begin()}
	rec := &store.Record{}
	ev := store.Event{Type: store.Modified, Record: rec}
	json, proto := negotiate.Output{MediaType: negotiate.JSON}, negotiate.Output{MediaType: negotiate.Protobuf}
	if get(ev, json, 1) != nil || made != 0 {
		t.Error("two watches share a frame")
	}
	ends = append(ends, f.begin())
	for step, c := range []struct {
		ev   store.Event
		out  negotiate.Output
		size int
		want byte // first byte of the frame, or 0 if there is none
		made int
	}{
		{ev, json, 1, 1, 1},
		{ev, json, 1, 1, 1},
		{ev, proto, 1, 2, 2},
		{store.Event{Type: store.Added, Record: rec}, json, 1, 3, 3},
		{ev, json, 1, 1, 3},
		{ev, negotiate.Output{MediaType: negotiate.JSON, As: "Table"}, 1, 0, 3},
		{store.Event{Type: store.Bookmark}, json, 1, 0, 3},
		{store.Event{Type: store.Modified, Record: &store.Record{}}, json, keptFrame + 1, 0, 4},
	} {
		got := get(c.ev, c.out, c.size)
		if made != c.made || (c.want == 0) != (got == nil) || got != nil && got[0] != c.want {
			t.Errorf("step %d: frame %v, made %d", step, got, made)
		}
	}
	for range keptFrames {
		get(store.Event{Type: store.Added, Record: &store.Record{}}, json, 1)
	}
	if before := made; get(ev, json, 1) == nil || made != before+1 {
		t.Error("the oldest frame is still kept")
	}
	for _, end := range ends {
		end()
	}
	for _, k := range f.kept {
		if k.rec != nil || k.data != nil {
			t.Error("a frame is kept although all watches have ended")
		}
	}
}
