// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release has the version of this project. The version of Kubernetes with which the
// programs are compatible is in package daemon.
package release

// Version is the version of this project. hack/build.sh has the linker replace it in a release of a
// commit that is not tagged, by a version with that commit.
var Version = "0.2.0"

// Commit is the commit from which a release was built, and Date the commit's time. The linker sets
// them. They are empty in other builds, into which go itself writes the commit.
var Commit, Date string
