// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume makes the volumes of a node's pods and keeps their content fresh.
package volume
