// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
)

// Renew returns what store.Config has as Renew for objects of row: stored bytes are
// served as they are, so that they have to be of the version that this server stores, and
// no JSON. Whether they have all defaults is not looked at, since reading them all for that would
// more than double what a start takes: who reads anything but protobuf sees them
// filled in, and they are stored with the next update.
func Renew(row *resource.Row) func(data []byte) ([]byte, bool) {
	if row.Codec != nil || row.New == nil {
		return nil
	}
	codec := Codec(row)
	header := wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind)
	return func(data []byte) ([]byte, bool) {
		if !wire.IsEnvelope(data) {
			return data, false // what is empty in JSON would be lost
		}
		if _, own := header.Open(data); own {
			return data, false
		}
		obj, err := codec.Decode(data, 0)
		if err != nil {
			return data, false // the error is the reader's
		}
		renewed, err := codec.Encode(obj)
		if err != nil {
			return data, false
		}
		return renewed, true
	}
}
