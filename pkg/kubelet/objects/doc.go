// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objects gives the kubelet the ConfigMaps, Secrets and service account
// tokens that the pods of its node refer to, and nothing else.
//
// Every object that a registered pod refers to has one watch of its own, selected
// by name, which is exactly what the Node authorizer lets a kubelet read. An object
// is watched from the registration of the first pod that refers to it until the last
// such pod is unregistered; an immutable object is read once and then not watched.
// Subscribers are told which pods a change concerns.
//
// Tokens are requested bound to their pod and kept until they are near their
// end; they are never written to disk by this package.
//
// A Manager is safe for concurrent use. What it returns is shared and must not be changed.
package objects
