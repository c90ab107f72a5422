// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership keeps the managedFields of objects that have a Go type:
// which manager wrote which field.
//
// Its results are those of structured-merge-diff under apimachinery's field
// managers, byte by byte, for a fraction of their cost. A kind's schema and its Go
// type are compiled into one tree once; an update walks the old and the new object
// side by side along that tree, looks only at what differs, and writes again only
// the entries that it changes.
//
// It handles what happens nearly always, and says so when a case is not one of
// those (several versions at once, repeated keys in a list, more managers than are
// kept, characters that need escaping in a key, bytes that no server of ours
// wrote). Then nothing has been changed, and the caller asks apimachinery.
//
// Sets, Keepers and what is compiled into them are immutable once made, and safe
// for concurrent use.
package ownership
