// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arch tests rules of this repository that the compiler does not check: which packages may
// import which packages, that only one package reads the time and creates random numbers, that no
// package has an init function, how many statements each part of the source tree may have, and how
// files, packages and comments are written. The package contains only tests.
package arch
