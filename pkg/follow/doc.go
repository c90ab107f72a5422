// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow keeps a process up to date with the API. All of Keelson's processes use it.
//
// There are two ways, both built on client-go's reflector:
//
//   - A Cache follows one list of objects. It keeps the part of each object that its owner needs,
//     in a form that the owner chooses. It has no queue: the API server waits
//     until the owner has taken a change.
//   - NewInformers makes shared informers with listers, for processes in which many parts read the
//     same objects, such as the controller manager.
//
// The rest is for owners that compute something from all objects that they follow. They note in
// Changes what has changed (or raise a Signal if they always compute everything), and a Loop calls
// them: many changes at once lead to one round, a failed round is repeated later, and a periodic
// check finds and repairs changes that other programs made to the owner's results.
//
// A Cache that cannot reach the API server retries until its context ends. It keeps what it has.
// When a watch cannot be resumed, the cache lists again and reports the objects that are missing
// from the new list as deleted. Owners must not act before the first list is complete: see Wait.
package follow
