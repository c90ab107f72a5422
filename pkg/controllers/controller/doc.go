// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller contains what all controllers share:
//
//   - Controller and Deps: the interface of a controller, and the clients, caches and options
//     that it gets;
//   - Queue: a queue of keys with workers that sync them;
//   - OnChange: handlers that turn events into keys;
//   - Expectations and Pods: writes that the cache does not show yet;
//   - Owner and Claim: adopting and releasing objects by selector.
//
// A controller moves the cluster from its present state towards the desired state, whatever
// the present state is. It syncs one key at a time, and never the same key twice at once. It
// keeps nothing in memory that a restart must not lose.
package controller
