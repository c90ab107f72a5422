// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objects provides the ConfigMaps, Secrets and service account tokens that the pods of the
// node refer to.
//
// Each object that a registered pod refers to is watched separately, by its name, because that is
// all that the Node authorizer allows a kubelet. The watch starts when the first pod that refers to
// the object is registered, and ends when the last such pod is unregistered. An immutable object is
// read once and not watched. Subscribers are called with each changed object and the pods that refer
// to it.
//
// Tokens are bound to their pod, cached in memory, and renewed before they expire. This package
// never writes them to disk.
//
// A Manager is safe for concurrent use. Returned objects are shared, so callers must not modify
// them.
package objects
