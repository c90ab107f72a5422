// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package customresources serves what CustomResourceDefinitions define.
//
// A Controller follows the definitions through the API's own store. Of each it
// decides what its status is to say (names, conditions), makes the rows of the
// kind table that the server serves its objects by, one for each version, and
// empties it when it is deleted. Everything it knows it can learn again from a
// list and a watch; several servers run it side by side, and writes that come
// second are repeated on what came first.
//
// A row's functions stand on a definition's schemas: structural schemas, value
// validation, defaults, pruning and rules are those of the apiextensions library.
// They are made at the first need. A definition that nobody uses costs its names
// and its bytes, which it shares with the watch cache.
//
// What an object means is its version's own, as in Kubernetes: strategies see an
// object in the version of the request, and the codec converts between that and
// what is stored.
package customresources
