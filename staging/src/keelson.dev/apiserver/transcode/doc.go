// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transcode makes JSON from the protobuf of API objects, and selects parts of it, without
// decoding it into Go values. It works by tables that are compiled from the Go types once.
//
// A Program makes the same JSON, byte for byte, as encoding/json makes of the decoded object, in a
// tenth of the time. A Picker copies the fields that some paths name, so that the caller decodes
// only these.
//
// A Program keeps the JSON of a bounded number of small parts of the objects that it read last, and
// copies it when an object has an equal part.
//
// Programs and pickers return false if the bytes have an unusual layout (a field twice, the keys of
// a map out of order) or contain something that JSON cannot express. The caller then decodes the
// object. Types whose JSON is not made of their fields, such as times and quantities, have rules of
// their own here, or are decoded one by one. Defaults are not applied: objects have them when they
// are stored.
//
// Types, programs and pickers are safe for concurrent use.
package transcode
