// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sanity runs the test suite of the Container Storage Interface, csi-sanity,
// against the driver of test/csi. It is a module of its own: nothing else needs what
// the suite brings.
package sanity
