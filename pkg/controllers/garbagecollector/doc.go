// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners were deleted.
//
// It watches the metadata of all objects that can be deleted, and keeps a graph of objects and
// their owners. Before it deletes an object, it asks the API server about each owner, unless a
// watch has shown the deletion of the owner. An owner that no watch has shown is called a guessed
// vertex of the graph. An owner in another namespace than its dependent counts as absent. An owner
// cannot be resolved if its kind is not served, or if its kind is namespaced and the dependent is
// cluster-scoped; then the dependent is not changed.
//
// There are three ways to delete an owner. With background deletion, the owner is deleted first and
// then its dependents. With foreground deletion, the owner gets a deletion timestamp and is removed
// only when all dependents with blockOwnerDeletion=true are deleted. With orphaning, the dependents
// remain and lose only their reference to the owner.
package garbagecollector
