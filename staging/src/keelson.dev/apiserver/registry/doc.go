// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry applies the rules of a resource to the writes of its objects: names and
// metadata, defaults, admission, the kind's own rules, managedFields, optimistic concurrency,
// graceful deletion, finalizers and propagation policies. The order is the same for every kind.
//
// A Registry takes objects of the resource's storage version and returns store records. It is
// independent of HTTP. The user, the audit event and the receiver of warnings are in the context,
// as k8s.io/apiserver's packages request and warning put them there.
//
// Registries are safe for concurrent use. They have no state of their own: all state is in the
// store.
package registry
