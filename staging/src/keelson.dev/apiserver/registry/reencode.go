// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
)

// Reencode returns the function for store.Config.Reencode. The server makes answers from stored
// bytes, so bytes in another version have to be encoded again in the storage version.
//
// It adds missing defaults only to objects of rows with DefaultsChanged. Decoding the objects of
// every row would more than double the time that a server needs to start.
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
		_, own := header.Open(data)
		if own && !row.DefaultsChanged {
			return data, false
		}
		obj, err := codec.Decode(data, 0)
		if err != nil {
			return data, false // readers that decode the object get the error
		}
		reencoded, err := codec.Encode(obj)
		if err != nil || bytes.Equal(reencoded, data) {
			return data, false
		}
		return reencoded, true
	}
}
