// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest serves the rows of the kind table (package resource) over HTTP as Kubernetes does,
// with its verbs, content types, error bodies, watch streams, tables and discovery.
//
// A Server is an http.Handler that runs after the filters of an API server. It expects
// k8s.io/apiserver's RequestInfo and user in the request's context (endpoints/request), and uses
// the audit event and the warning recorder if they are present. It neither authenticates nor
// authorizes requests, with one exception: an update that creates an object requires the permission
// to create.
//
// There is one handler function for each verb; all kinds use it. Responses are made from the bytes
// in the store. An encoding of an object is made when it is first needed, and shared by all readers
// of that revision.
//
// Rows may be added and removed while the server runs.
package rest
