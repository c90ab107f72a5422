// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intake decodes pods from the API server for the scheduler. It decodes only those parts of a
// pod's bytes that plugins look at. Parts that pods have in common are decoded once and shared.
//
// The pods of one controller differ in little: name, node, status. Other parts (labels, owners, and
// the spec without the node and without volumes that plugins ignore) are looked up by their bytes.
// Shared parts must not be modified, as is the rule for objects in any cache.
//
// Other kinds are decoded as usual.
package intake
