// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podspec sets the defaults of pod specifications, names the fields of features that can be off,
// and validates the specifications. It does so for pods and for pod templates of controllers.
// Defaults, field paths and messages are those of Kubernetes.
//
// DefaultSpec sets the defaults of templates. DefaultPod sets additional defaults that only pods
// have. If a new version of Kubernetes adds a default for pods, stored templates therefore stay
// unchanged; a changed template would cause a rollout.
//
// All functions are pure: they do no I/O and keep no state.
package podspec
