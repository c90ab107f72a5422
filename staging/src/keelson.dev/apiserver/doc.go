// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the root of a library for serving Kubernetes-style
// APIs: storage with a byte-level watch cache, REST verbs, negotiation, patch
// and apply, discovery and OpenAPI. It knows no kind; a server hands it a
// table of them (package resource).
//
// To serve kinds of one's own:
//
//  1. Declare each as a resource.Kind: group, version and names, and functions
//     that default, prepare and validate an object and print it in a table.
//  2. Make a store.Backend on etcd (store/kv/etcd) or in memory
//     (store/kv/memory) and run it.
//  3. Make a rest.Server of the rows and a store for each. It is an
//     http.Handler; authentication, and a RequestInfo in the context of each
//     request, are what it expects of the handlers before it.
//
// The example does this in one file, with a kind that is written by hand.
package apiserver
