// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller contains what all controllers share:
//
//   - Controller and Deps: the interface of a controller, and the clients, caches and options
//     that its constructor gets;
//   - Queue: a queue of keys with workers that sync them;
//   - OnChange: registers a handler for the events of an informer;
//   - Expectations and Pods: keep track of writes that the cache does not show yet;
//   - Owner and Claim: adopt and release objects by selector.
//
// A controller compares the cluster's present state with the desired state and writes what is
// missing. It syncs one key (usually namespace/name of an object) at a time, and never the same key
// twice at once. It keeps no state in memory that it could not rebuild from the API server after a
// restart.
package controller
