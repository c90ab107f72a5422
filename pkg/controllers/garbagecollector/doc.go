// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners are gone.
//
// It watches the metadata of all objects that can be deleted and keeps a graph
// of who owns whom. What the graph says is never acted on alone: before an
// object is deleted, it and its owners are asked for at the API server. An owner
// that the graph has not seen stands in it as a guess, which is checked too.
//
// Three ways of deletion: in the background (the owner goes, then its
// dependents), in the foreground (the owner stays, marked, until the dependents
// that block it are gone), and orphaning (the dependents lose their reference).
package garbagecollector
