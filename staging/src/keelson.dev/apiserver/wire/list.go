// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// ListSize is the size of the list of a ListMeta of meta bytes and items of
// the given sizes, without envelope.
func ListSize(meta int, items func(yield func(n int) bool)) int {
	size := 1 + protowire.SizeBytes(meta)
	for n := range items {
		size += 1 + protowire.SizeBytes(n)
	}
	return size
}

// AppendListMeta appends a list's metadata, which is its field 1.
func AppendListMeta(dst, meta []byte) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	return protowire.AppendBytes(dst, meta)
}

// AppendLastListMeta appends the metadata of a list that has it after its items: the v1beta1
// PartialObjectMetadataList has its fields the other way round.
func AppendLastListMeta(dst, meta []byte) []byte {
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendBytes(dst, meta)
}

// AppendFirstItemHeader is AppendItemHeader of such a list.
func AppendFirstItemHeader(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}

// AppendItemHeader appends what comes before an item of n bytes in a list.
func AppendItemHeader(dst []byte, n int) []byte {
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}

// AppendWatchEvent appends a length-delimited metav1.WatchEvent frame: the type,
// and the object as an enveloped RawExtension.
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
