// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// EndNow returns the envelope data of a terminating object, changed as if its grace period had been
// 0: deletionGracePeriodSeconds is 0, and deletionTimestamp is the time at which the deletion was
// requested. ok is false if data is not the envelope of an object with a grace period greater than
// 0.
func EndNow(data []byte) (ended []byte, ok bool) {
	if _, ok = findEnd(data); !ok { // false for most deleted objects; they are not copied
		return nil, false
	}
	ended = bytes.Clone(data)
	e, _ := findEnd(ended)
	putVarint(e.end, e.asked)
	putVarint(e.grace, 0)
	return ended, true
}

// graceful refers to two varints in the bytes of an object: the seconds of deletionTimestamp, and
// deletionGracePeriodSeconds.
type graceful struct {
	end, grace []byte // parts of the object's bytes
	asked      uint64 // when the deletion was requested, in Unix seconds
}

// findEnd finds the varints of graceful in an envelope. ok is false if there are none, or if the
// grace period is 0.
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

// seconds returns the varint with the seconds of an encoded metav1.Time, or nil if there is none.
func seconds(t []byte) []byte {
	num, _, n := field(t)
	if n < 0 || num != 1 {
		return nil
	}
	return t[protowire.SizeTag(num):n]
}

// putVarint overwrites the varint in b with v, in the same number of bytes. v must not be greater
// than the old value.
func putVarint(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v) | 0x80
		v >>= 7
	}
	b[len(b)-1] &= 0x7f
}
