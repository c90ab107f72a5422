// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// ListSize returns the size in bytes of an encoded list without its envelope. meta is the size of
// its ListMeta, and items yields the sizes of its items.
func ListSize(meta int, items func(yield func(n int) bool)) int {
	size := 1 + protowire.SizeBytes(meta)
	for n := range items {
		size += 1 + protowire.SizeBytes(n)
	}
	return size
}

// AppendListMeta appends the ListMeta of a list as field 1.
func AppendListMeta(dst, meta []byte) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	return protowire.AppendBytes(dst, meta)
}

// AppendLastListMeta appends the ListMeta of a v1beta1 PartialObjectMetadataList, which has its
// items in field 1 and its ListMeta in field 2.
func AppendLastListMeta(dst, meta []byte) []byte {
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendBytes(dst, meta)
}

// AppendFirstItemHeader appends the tag and the size of an item of n bytes of a v1beta1
// PartialObjectMetadataList. The caller appends the item.
func AppendFirstItemHeader(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}

// AppendItemHeader appends the tag and the size of an item of n bytes of a list. The caller appends
// the item.
func AppendItemHeader(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}

// AppendWatchEvent appends the frame of a watch event: the length of the event in 4 bytes, and a
// metav1.WatchEvent, which has the object as a RawExtension. The last argument is an envelope.
func AppendWatchEvent(dst []byte, eventType string, object []byte) []byte {
	extension := 1 + protowire.SizeBytes(len(object))
	size := 1 + protowire.SizeBytes(len(eventType)) + 1 + protowire.SizeBytes(extension)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, eventType)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(extension))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	return protowire.AppendBytes(dst, object)
}
