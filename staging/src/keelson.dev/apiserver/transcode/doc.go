// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transcode makes JSON from the protobuf encoding of API objects, and selects parts of the
// encoding, without decoding it into Go values. It works with tables that it compiles once from the
// Go types.
//
// A Program makes the same JSON, byte for byte, as encoding/json makes from the decoded object, in
// a tenth of the time. A Picker copies the fields at some paths, so that the caller decodes only
// these.
//
// A Program keeps the JSON of a bounded number of small parts of the objects that it converted
// last, and copies it when an object has an equal part.
//
// Programs and pickers return false if the bytes have an unusual layout (a repeated field, the keys
// of a map out of order) or contain something that JSON cannot express. The caller then decodes the
// object. Types whose JSON does not consist of their fields, such as times and quantities, are
// converted by special code of this package, or by decoding the value. Defaults are not applied:
// stored objects already have them.
//
// Types, programs and pickers are safe for concurrent use.
package transcode
