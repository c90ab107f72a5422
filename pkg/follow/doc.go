// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow keeps a process up to date with objects of the API server. All programs of this
// project except the CNI plugin use it.
//
// There are two ways, which are both built on client-go's reflector:
//
//   - A Cache lists and watches objects for one owner, the code that uses the cache. It keeps only
//     the part of each object that the owner needs, in a form that the owner chooses. It has no
//     queue: it calls the owner for each change, and waits for the call before it reads the next
//     event.
//   - NewInformers returns shared informers with listers. It is for processes in which many parts
//     read the same objects, such as the controller manager.
//
// The other types are for owners that compute a result from all objects together. Such an owner
// records in Changes which objects have changed. If it always computes everything, it raises a
// Signal instead. A Loop then calls the owner: once for many changes at the same time, again after
// a failure, and periodically, to find and repair what other programs have changed in the owner's
// results.
//
// If a Cache cannot reach the API server, it keeps its objects and retries until its context is
// done. If a watch cannot be resumed, the cache lists again, and reports objects that are not in
// the new list as deleted. Owners must not act before the first list is complete: see Wait.
package follow
