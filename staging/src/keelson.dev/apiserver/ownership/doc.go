// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership computes the managedFields of objects that have a Go type: which manager owns
// which field.
//
// Its results equal those of structured-merge-diff with apimachinery's field managers, byte for
// byte, but it is much faster. It compiles the schema and the Go type of a kind into one tree,
// once. On an update it walks the old and the new object along that tree, looks only at the parts
// that differ, and encodes only the entries of managedFields that change.
//
// The package handles the usual cases. In all others it returns false, without having changed
// anything, and the caller uses apimachinery instead. The other cases are managedFields with
// entries of several API versions or with too many entries, FieldsV1 in an unusual form, repeated
// keys in a list, and keys with characters that JSON has to escape.
//
// Sets, Keepers and compiled kinds are immutable, and safe for concurrent use.
package ownership
