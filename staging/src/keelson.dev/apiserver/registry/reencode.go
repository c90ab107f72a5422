// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
)

// Reencode returns the function for store.Config.Reencode. Stored bytes are served as they are, so
// they must be protobuf of the version that this server stores. Reencode does not check that objects
// have all defaults: decoding every object would more than double the time of a start. Readers of
// other encodings than protobuf see defaults applied, and the next update stores them.
func Reencode(row *resource.Row) func(data []byte) ([]byte, bool) {
	if row.Codec != nil || row.New == nil {
		return nil
	}
	codec := Codec(row)
	header := wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind)
	return func(data []byte) ([]byte, bool) {
		if !wire.IsEnvelope(data) {
			return data, false // decoding would turn empty lists in JSON into nil
		}
		if _, own := header.Open(data); own {
			return data, false
		}
		obj, err := codec.Decode(data, 0)
		if err != nil {
			return data, false // reading the object returns the error
		}
		reencoded, err := codec.Encode(obj)
		if err != nil {
			return data, false
		}
		return reencoded, true
	}
}
