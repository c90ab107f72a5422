// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import "strconv"

// Emulated is the Kubernetes release that a server emulates, as its minor version: 36 is Kubernetes
// 1.36. 0 means the server's own release.
type Emulated uint

// Before reports whether the emulated release is older than 1.minor. minor must not be greater than
// the minor version of the server's own release.
func (e Emulated) Before(minor uint) bool { return e != 0 && uint(e) < minor }

// String returns the release in the form "1.36".
func (e Emulated) String() string { return "1." + strconv.FormatUint(uint64(e), 10) }
