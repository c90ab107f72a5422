// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arch tests rules of this repository that the compiler does not check: which packages may
// import which packages, that only one package reads the time and creates random numbers, that no
// code runs at import, and how files and packages are written. The package contains only tests.
package arch
