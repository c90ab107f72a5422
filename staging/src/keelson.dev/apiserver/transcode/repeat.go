// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode

import "bytes"

const (
	// repeatLeast and repeatMost bound the sizes, in bytes, of the cached parts.
	repeatLeast, repeatMost = 32, 4 << 10
	// repeatSlots is the maximum number of cached parts, and repeatValues the maximum number of
	// cached elements of one list.
	repeatSlots, repeatValues = 512, 8
	// After repeatPatience consecutive values that differ from the cached one, only every
	// repeatPatience-th value is cached, because caching a value costs a copy.
	repeatPatience = 8
)

// repeats caches the JSON of parts of objects. A part is the content of one field, or one element of
// a list. Objects of one kind differ mostly in names, times and addresses, so that the next object
// often contains the same part. Comparing two parts takes a fraction of the time of converting one.
type repeats [repeatSlots]repeat

// repeat is an entry of the cache: the value that a part had in an earlier object, with its JSON.
type repeat struct {
	field  *field
	at     int    // position in a list, starting with 1; 0 if the part is the whole content of the field
	misses uint   // number of consecutive values that differed from the cached one
	raw    []byte // protobuf of the part
	text   []byte // JSON of the part
}

// slot returns the slot in which a part is cached. Several parts may have the same slot and replace
// each other.
func (r *repeats) slot(f *field, at int) *repeat {
	return &r[(f.id*(1+repeatValues)+at)%repeatSlots]
}

// part appends the JSON of raw, from the cache if possible. If the argument at is 0, raw is the whole
// content of field f. Otherwise raw is one element of the list f, and the argument at is 1 plus the
// element's index modulo repeatValues.
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

// make converts a part to JSON and appends it. It does not use r.repeats.
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
