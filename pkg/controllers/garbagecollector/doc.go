// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners were deleted.
//
// It watches the metadata of all objects that can be deleted, and keeps a graph of objects and
// their owners. Before it deletes an object, it asks the API server for each owner whose deletion
// the watch has not shown. An owner that no watch has shown is called a guessed vertex of the
// graph. An owner in another namespace counts as absent. An owner cannot be resolved if its kind is
// not served, or if it is namespaced and the dependent is not; then the dependent is left alone.
//
// There are three ways to delete an owner. In the background, the owner is deleted first and then
// its dependents. In the foreground, the owner is marked and remains until all dependents that
// block it are deleted. With orphaning, the dependents only lose their reference.
package garbagecollector
