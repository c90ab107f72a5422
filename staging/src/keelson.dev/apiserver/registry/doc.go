// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry gives one resource its meaning: it turns wanted changes into
// stored objects. Names and metadata, defaulting, admission, strategies,
// managedFields, optimistic concurrency, graceful deletion, finalizers and
// propagation are applied here, in one order for every kind.
//
// A Registry speaks in objects of the row's storage version and answers with
// store records; it knows nothing of HTTP. The user, the audit event and the
// receiver of warnings come in the context, where k8s.io/apiserver's request and
// warning packages keep them.
//
// Registries are safe for concurrent use and hold no state beside their store's.
package registry
