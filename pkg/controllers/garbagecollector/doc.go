// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners are gone.
//
// It watches the metadata of all objects that can be deleted and keeps a graph
// of who owns whom. Before an object is deleted, the API server is asked for the
// owners whose end the watch has not shown. An owner that the graph has not seen
// stands in it as a guess. A dependent counts an owner in another namespace as
// absent. An owner cannot be resolved if its kind is not served, or if it is
// namespaced and the dependent is not: such a dependent is left alone.
//
// Three ways of deletion: in the background (the owner goes, then its
// dependents), in the foreground (the owner stays, marked, until the dependents
// that block it are gone), and orphaning (the dependents lose their reference).
package garbagecollector
