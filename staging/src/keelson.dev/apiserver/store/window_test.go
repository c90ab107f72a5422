// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"runtime"
	"testing"
	"weak"
)

// TestGone checks that watchers that call gone at the same time share the last state of a deleted
// object, and that the window does not keep that state in memory.
func TestGone(t *testing.T) {
	want := bytes.Repeat([]byte("an object that ends "), 200)
	ended := func(data []byte) ([]byte, bool) { return append(bytes.Clone(data), '!'), true }
	for name, c := range map[string]struct {
		finalState func([]byte) ([]byte, bool)
		want       []byte
	}{
		"unchanged":                    {nil, want},
		"changed by Config.FinalState": {ended, append(bytes.Clone(want), '!')},
	} {
		t.Run(name, func(t *testing.T) {
			data := bytes.Clone(want)
			held := weak.Make(&data[0])
			ch := &change{rev: 2, prev: NewRecord("k", 1, data, Attrs{}, nil, nil), finalState: c.finalState}
			first := ch.gone()
			if second := ch.gone(); second != first {
				t.Error("two callers at a time got different records")
			}
			if first.Revision != 2 || !bytes.Equal(first.Bytes(), c.want) {
				t.Errorf("the last state is %q at %d", first.Bytes(), first.Revision)
			}
			newPacker().pack([]*Record{ch.prev})
			data, first = nil, nil
			runtime.GC()
			if held.Value() != nil {
				t.Error("the change keeps bytes that have been packed")
			}
			if last := ch.gone(); last.Revision != 2 || !bytes.Equal(last.Bytes(), c.want) {
				t.Errorf("the last state is %q at %d afterwards", last.Bytes(), last.Revision)
			}
		})
	}
}
