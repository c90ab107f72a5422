// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

// The release of Kubernetes whose contract the processes keep.
const (
	Major, Minor, Patch = "1", "36", "6"
	// Version is what every process says it is.
	Version = "v" + Major + "." + Minor + "." + Patch + "+keelson"
)
