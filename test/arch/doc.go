// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arch holds tests for rules of this repository that a compiler does not check: which
// packages may import which, that time and random numbers come from one package only, that no code
// runs at import, and how files and packages are written. It has no code except tests.
package arch
