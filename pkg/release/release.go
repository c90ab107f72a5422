// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release has the version of this project. The version of Kubernetes with which the
// programs are compatible is in package daemon.
package release

// Version is the version of this project.
const Version = "0.2.0"
