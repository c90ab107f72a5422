// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// EndNow returns the envelope data of a terminating object with a grace period of 0 and with the
// deletion timestamp at which the deletion was requested. ok is false if data is not the envelope
// of an object with a grace period greater than 0.
func EndNow(data []byte) (ended []byte, ok bool) {
	if _, ok = findEnd(data); !ok { // !ok for most deleted objects, which are then not copied
		return nil, false
	}
	ended = bytes.Clone(data)
	e, _ := findEnd(ended)
	putVarint(e.end, e.asked)
	putVarint(e.grace, 0)
	return ended, true
}

// graceful has the varints of the deletion timestamp (in seconds) and of the grace period of an
// object.
type graceful struct {
	end, grace []byte // parts of the object's bytes
	asked      uint64 // when the deletion was requested, in Unix seconds
}

// findEnd finds these varints in an envelope. ok is false unless the grace period is greater than
// 0.
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

// Field numbers of deletionTimestamp and deletionGracePeriodSeconds in ObjectMeta.
const (
	endField   = 9
	graceField = 10
)

// seconds returns the varint with the seconds of a Time; nil if it has none.
func seconds(t []byte) []byte {
	num, _, n := field(t)
	if n < 0 || num != 1 {
		return nil
	}
	return t[protowire.SizeTag(num):n]
}

// putVarint writes v into b as a varint that fills b. v must not be greater than the varint in b.
func putVarint(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v) | 0x80
		v >>= 7
	}
	b[len(b)-1] &= 0x7f
}
