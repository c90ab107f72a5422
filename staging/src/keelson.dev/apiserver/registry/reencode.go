// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
)

// Reencode returns the function for store.Config.Reencode. The server sends stored bytes unchanged
// to clients that accept protobuf, so bytes in another version have to be encoded again in the
// storage version.
//
// It does not check whether objects have all defaults, because decoding every object would more
// than double the time that a server needs to start. Clients that do not use protobuf see defaults
// applied, and the next update stores them.
func Reencode(row *resource.Row) func(data []byte) ([]byte, bool) {
	if row.Codec != nil || row.New == nil {
		return nil
	}
	codec := Codec(row)
	header := wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind)
	return func(data []byte) ([]byte, bool) {
		if !wire.IsEnvelope(data) {
			return data, false // do not decode: that would turn empty lists in the JSON into nil
		}
		if _, own := header.Open(data); own {
			return data, false
		}
		obj, err := codec.Decode(data, 0)
		if err != nil {
			return data, false // readers that decode the object get the error
		}
		reencoded, err := codec.Encode(obj)
		if err != nil {
			return data, false
		}
		return reencoded, true
	}
}
