// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storehealth keeps the databases of the API server usable. An etcd whose database has reached
// its quota rejects every write, also those that would make room, until an operator compacts and
// defragments it and ends its alarm. This package acts before that (see docs/decisions/0038-store-health.md):
//
//   - A Keeper observes the members of one etcd cluster, exports their sizes as metrics, and warns when
//     a part of the quota is in use.
//   - Keeper.Admit rejects writes that need more space when little is left, so that deletes, and what
//     nodes need, still find space.
//   - Keeper.Maintain compacts the history when little space is left, defragments one member at a time
//     if it pays, and ends the alarm NOSPACE when there is space again.
//
// Policy has the decisions, without I/O. A lock in the database keeps API servers from defragmenting
// two members at once.
package storehealth
