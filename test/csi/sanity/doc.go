// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sanity runs the test suite of the Container Storage Interface, csi-sanity, against the
// drivers of this repository. It is a separate module because of the suite's dependencies.
package sanity
