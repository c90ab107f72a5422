// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver puts the API server together: storage, the kind table's
// rows, authentication, authorization, admission, what ties services and pods
// to the rest of the cluster, and the HTTPS server in front of it.
//
// New checks a configuration and starts nothing; Run starts everything, serves
// until its context ends, drains, and returns when no goroutine of its own is
// left. Nothing here is global: several servers can run in one process, over one
// store or over several.
//
// The packages below this one each hold one concern and know nothing of each
// other; what goes together, and in which order, is said here: in filters.Chain
// for requests, in admission.Plugins for writes, and in Server.hooks for what
// happens at the start.
package apiserver
