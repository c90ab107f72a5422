// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership computes the managedFields of objects that have a Go type: which manager owns
// which field.
//
// Its results equal those of structured-merge-diff with apimachinery's field managers, byte for
// byte, at a fraction of their cost. The schema and the Go type of a kind are compiled into one
// tree once. An update walks the old and the new object along that tree, looks only at what
// differs, and encodes only the entries that it changes.
//
// The package handles the usual cases. It returns false, without having changed anything, in all
// others, and the caller then uses apimachinery: managers of several versions, repeated keys in a
// list, more managers than are kept, characters in a key that need escaping, managedFields that
// were not written in the usual form.
//
// Sets, Keepers and compiled kinds are immutable, and safe for concurrent use.
package ownership
