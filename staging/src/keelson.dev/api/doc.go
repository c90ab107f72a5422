// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the root of the module that other projects import to talk to
// Keelson: its own kinds, their client, and the clock everything is driven by.
package api
