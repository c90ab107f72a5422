// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package customresources serves the custom resources that CustomResourceDefinitions define.
//
// A Controller follows the definitions through the API's own store. It writes their status (names
// and conditions), adds rows to the kind table, one for each served version, and deletes the
// objects of a definition that is being deleted. It can rebuild all its state from a list and a
// watch. Several servers can run it at the same time: writes that conflict are repeated on the
// newer object.
//
// The rules of a row come from the definition's schemas. Structural schemas, validation, defaults,
// pruning and validation rules are implemented by the apiextensions library. They are created when
// they are first needed, so an unused definition costs only its names and its bytes, which it
// shares with the watch cache.
//
// As in Kubernetes, each version has rules of its own: strategies see an object in the version of
// the request, and the codec converts between that version and the stored one.
package customresources
