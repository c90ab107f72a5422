// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Item is a stored object with a resourceVersion that its stored bytes do not contain. It refers to
// the parts of the bytes before and after the resourceVersion, so nothing is copied before Append.
type Item struct {
	before, after []byte // parts of the ObjectMeta before and after resourceVersion (field 6)
	tail          []byte // part of the object after its ObjectMeta
	digits        [20]byte
	rv            int // number of digits in use
	meta, raw     int // sizes of the ObjectMeta and of the object, in bytes
}

// Open returns the object's message in the envelope data. raw shares memory with data. ok is false
// if data is not an envelope of the header's kind, or does not have the layout that Header.Marshal
// writes.
func (h Header) Open(data []byte) (raw []byte, ok bool) {
	if !bytes.HasPrefix(data, h.typeMeta) {
		return nil, false
	}
	raw, n := protowire.ConsumeBytes(skipTag(data[len(h.typeMeta):], 2))
	return raw, n >= 0 && string(data[len(h.typeMeta)+1+n:]) == trailer
}

// Splice returns the object in the envelope data with resourceVersion rev, or without
// resourceVersion if rev is 0. The Item shares memory with data. ok is false if Open returns false,
// or if the fields of ObjectMeta are not in ascending order.
func (h Header) Splice(data []byte, rev int64) (item Item, ok bool) {
	raw, ok := h.Open(data)
	if !ok {
		return item, false
	}
	meta, n := protowire.ConsumeBytes(skipTag(raw, 1))
	if n < 0 {
		return item, false
	}
	item.tail = raw[1+n:]
	if item.before, item.after, ok = cutResourceVersion(meta); !ok {
		return item, false
	}
	if rev != 0 {
		item.rv = len(strconv.AppendInt(item.digits[:0], rev, 10))
	}
	item.meta = len(item.before) + 1 + protowire.SizeBytes(item.rv) + len(item.after)
	item.raw = 1 + protowire.SizeBytes(item.meta) + len(item.tail)
	return item, true
}

// skipTag returns b without the tag of the length-delimited field num at its start, or nil if b
// starts with another tag. num is less than 16.
func skipTag(b []byte, num byte) []byte {
	if len(b) == 0 || b[0] != num<<3|byte(protowire.BytesType) {
		return nil
	}
	return b[1:]
}

// Size returns the size of the object's message in bytes.
func (i *Item) Size() int { return i.raw }

// Append appends the object's message.
func (i *Item) Append(dst []byte) []byte {
	dst = append(dst, 1<<3|byte(protowire.BytesType))
	dst = protowire.AppendVarint(dst, uint64(i.meta))
	dst = append(dst, i.before...)
	dst = append(dst, 6<<3|byte(protowire.BytesType), byte(i.rv))
	dst = append(dst, i.digits[:i.rv]...)
	dst = append(dst, i.after...)
	return append(dst, i.tail...)
}

// AppendItem appends the object in an envelope.
func (h Header) AppendItem(dst []byte, i *Item) []byte {
	return h.End(i.Append(h.Begin(dst, i.raw)))
}

// AppendWatchItem appends the frame of a watch event whose object is the item, like
// AppendWatchEvent.
func (h Header) AppendWatchItem(dst []byte, eventType string, i *Item) []byte {
	object := h.Size(i.raw)
	extension := 1 + protowire.SizeBytes(object)
	size := 1 + protowire.SizeBytes(len(eventType)) + 1 + protowire.SizeBytes(extension)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, eventType)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(extension))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(object))
	return h.AppendItem(dst, i)
}

// Metadata reduces the item to a PartialObjectMetadata, which has its ObjectMeta in field 1 as
// well.
func (i *Item) Metadata() {
	i.raw -= len(i.tail)
	i.tail = nil
}
