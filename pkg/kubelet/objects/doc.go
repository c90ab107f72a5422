// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objects provides the ConfigMaps, Secrets and service account tokens that the pods of the
// node refer to.
//
// Every object that a registered pod refers to has a watch of its own, selected by name; the Node
// authorizer allows a kubelet exactly that. An object is watched from the registration of the first
// pod that refers to it until the last such pod is unregistered. An immutable object is read once
// and not watched. Subscribers learn which pods a change affects.
//
// Tokens are bound to their pod and cached until they are close to expiry. This package never
// writes them to disk.
//
// A Manager is safe for concurrent use. Returned objects are shared and must not be modified.
package objects
