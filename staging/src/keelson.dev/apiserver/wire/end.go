// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// EndNow returns an object in an envelope that ends gracefully as one whose grace
// period was cut short to nothing, at the moment at which its end was asked for. ok is
// false when data is no envelope of an object that has time left.
func EndNow(data []byte) (ended []byte, ok bool) {
	if _, ok = findEnd(data); !ok { // most objects that go: they are not copied
		return nil, false
	}
	ended = bytes.Clone(data)
	e, _ := findEnd(ended)
	putVarint(e.end, e.asked)
	putVarint(e.grace, 0)
	return ended, true
}

// graceful is where an object says when it ends, and how long that takes.
type graceful struct {
	end, grace []byte
	asked      uint64 // when its end was asked for
}

// findEnd finds it in an envelope of an object that has time left.
func findEnd(data []byte) (g graceful, ok bool) {
	e, err := Parse(data)
	if err != nil {
		return g, false
	}
	meta, err := Metadata(e.Raw)
	if err != nil {
		return g, false
	}
	for len(meta) > 0 {
		num, value, n := field(meta)
		switch {
		case n < 0:
			return g, false
		case num == endField:
			g.end = seconds(value)
		case num == graceField:
			g.grace = meta[protowire.SizeTag(num):n]
		}
		meta = meta[n:]
	}
	at, n := protowire.ConsumeVarint(g.end)
	left, m := protowire.ConsumeVarint(g.grace)
	if n < 0 || m < 0 || int64(left) <= 0 || at < left {
		return g, false
	}
	g.asked = at - left
	return g, true
}

// Numbers of ObjectMeta's deletionTimestamp and deletionGracePeriodSeconds.
const (
	endField   = 9
	graceField = 10
)

// seconds is where a Time has its seconds; nil: nowhere.
func seconds(t []byte) []byte {
	num, _, n := field(t)
	if n < 0 || num != 1 {
		return nil
	}
	return t[protowire.SizeTag(num):n]
}

// putVarint writes v, which is not greater than what b has, into all of b.
func putVarint(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v) | 0x80
		v >>= 7
	}
	b[len(b)-1] &= 0x7f
}
