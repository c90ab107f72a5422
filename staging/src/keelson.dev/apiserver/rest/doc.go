// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest serves rows of the kind table over HTTP as Kubernetes does: its
// verbs, content types, error bodies, watch streams, tables and discovery.
//
// A Server is a handler that comes after the filters of whoever assembles it:
// it expects k8s.io/apiserver's RequestInfo and user in the request's context
// (endpoints/request), and honours that package's audit event, and the warning
// recorder, where they are present. It authenticates and authorizes nothing
// itself, apart from the second question that create-on-update asks.
//
// Handler code is one function for each verb, used by every kind. Objects are
// answered from the bytes the store keeps: an encoding is made at the first need
// and shared by every reader of that revision.
//
// Rows may be added and removed while the server runs.
package rest
