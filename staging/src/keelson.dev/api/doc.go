// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the root of the module that other projects import to use Keelson's own API: its
// kinds, their paths, and the clock that components are built on.
package api
