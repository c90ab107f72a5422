// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release holds Keelson's own version. The version of Kubernetes whose contract
// the processes keep is in package daemon.
package release

// Version is Keelson's version. This is the only place where it is written.
const Version = "0.2.0"
