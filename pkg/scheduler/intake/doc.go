// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intake decodes pods from the API server for the scheduler. It decodes only those fields
// of a pod that plugins read. Parts that are equal in several pods are decoded once and shared, to
// save memory and time.
//
// The pods of one controller differ only in a few fields such as name, node and status. The other
// parts (labels, owners, and the spec without the node and without volumes that plugins ignore) are
// looked up by their bytes. Callers must not modify shared parts, as with objects in any informer
// cache.
//
// Objects of other kinds are decoded as usual.
package intake
