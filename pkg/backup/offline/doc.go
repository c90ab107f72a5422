// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package offline makes the data directory of a restored store, while no etcd uses it.
//
// The new store has the objects of an earlier one, but it is another etcd cluster, with one member:
//
//   - Its revision is higher than any that the earlier store can have issued, whatever happened to that
//     store since, and all lower revisions are marked as compacted. So a client with a watch of the lost
//     history gets the error "compacted" (410), and one that updates an object with a resourceVersion of
//     the lost history gets a conflict (409).
//   - Its cluster ID is new, so members of the earlier store cannot connect to it.
//   - It has a new epoch (package epoch).
//
// Sources are never changed.
package offline
