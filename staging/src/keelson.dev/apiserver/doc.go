// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the root of a library for serving Kubernetes-style APIs: storage with a
// byte-level watch cache, REST verbs, content negotiation, patches, server-side apply, discovery
// and OpenAPI. It has no built-in kinds; a server passes it a table of kinds (package resource).
//
// To serve your own kinds:
//
//  1. Declare each as a resource.Kind: group, version, names, and functions that default, prepare,
//     validate and print an object.
//  2. Make a store.Backend on etcd (store/kv/etcd) or in memory (store/kv/memory) and run it.
//  3. Make a rest.Server from the rows of the table and a store for each row. It is an http.Handler.
//     It expects the handlers before it to authenticate requests and to put a RequestInfo into the
//     context.
//
// The example does this in one file, with a kind that is written by hand.
package apiserver
