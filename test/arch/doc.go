// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arch holds the rules of the house that a compiler does not check, as
// tests: who may import whom, that time and randomness come from one package
// alone, that nothing runs at import, and how files and packages are written.
// It has no code but its tests.
package arch
