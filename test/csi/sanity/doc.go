// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sanity runs csi-sanity, the test suite of the Container Storage Interface, against the
// CSI drivers of this repository. It is a separate module, so that other modules do not depend on
// what the suite requires.
package sanity
