// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode

import "bytes"

const (
	// repeatLeast and repeatMost are of what sizes parts of objects are remembered.
	repeatLeast, repeatMost = 32, 4 << 10
	// repeatSlots is how many are, and repeatValues how many of one list.
	repeatSlots, repeatValues = 512, 8
	// repeatPatience is how often a part may differ from the one before it until
	// only one of so many is remembered.
	repeatPatience = 8
)

// repeats remembers what has been made of parts of the objects before this one, by
// field: objects of a kind are alike but for names, moments and addresses, and to
// find two parts equal is a small part of the work of reading one.
type repeats [repeatSlots]repeat

// repeat is the part that a field has held last.
type repeat struct {
	field  *field
	at     int // which value of a list; 0: all that the field holds
	misses uint
	raw    []byte
	text   []byte
}

// slot is where a part is remembered, or another one that has come later.
func (r *repeats) slot(f *field, at int) *repeat {
	return &r[(f.id*(1+repeatValues)+at)%repeatSlots]
}

// part appends what f makes of raw, which is what it holds, or the value at in a
// list, counted from 1.
func (r *run) part(dst []byte, f *field, at int, raw []byte) ([]byte, bool) {
	if len(raw) < repeatLeast || len(raw) > repeatMost || f.own {
		return r.make(dst, f, at, raw)
	}
	known := r.repeats.slot(f, at)
	same := known.field == f && known.at == at
	if same && bytes.Equal(known.raw, raw) {
		known.misses = 0
		return append(dst, known.text...), true
	}
	start := len(dst)
	dst, ok := r.make(dst, f, at, raw)
	if !ok {
		return nil, false
	}
	if !same {
		known.field, known.at, known.misses = f, at, 0
	}
	if known.misses++; known.misses < repeatPatience || known.misses%repeatPatience == 0 {
		known.raw, known.text = append(known.raw[:0], raw...), append(known.text[:0], dst[start:]...)
	}
	return dst, true
}

func (r *run) make(dst []byte, f *field, at int, raw []byte) ([]byte, bool) {
	switch {
	case at > 0:
		return r.value(dst, &f.value, raw)
	case f.list:
		return r.list(dst, f, raw)
	case f.dict:
		return r.dict(dst, f, raw)
	default:
		return r.value(dst, &f.value, content(raw))
	}
}
