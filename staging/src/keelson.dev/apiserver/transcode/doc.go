// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transcode works on the protobuf of API objects without decoding it, by
// tables that are compiled from their Go types once.
//
// A Program makes of an object's bytes the JSON that encoding/json makes of the
// object that the bytes decode into, byte for byte, in a tenth of the time. A
// Picker takes from them what a few paths name, so that decoding the rest is
// saved.
//
// A Program remembers what it has made of parts of the objects before, a bounded
// number of small ones, and copies that where a part is the same.
//
// Neither guesses: bytes that are laid out in an unusual way (a field twice, the
// keys of a map out of order), or hold what JSON cannot say, are refused, and the
// caller decodes them. Types whose JSON is not made of their fields, as moments
// and quantities are, have rules of their own here or are decoded one by one.
// Objects are not given the defaults of their kind: they have them when they are
// stored.
package transcode
