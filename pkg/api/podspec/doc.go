// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podspec sets the defaults of pod specifications, clears fields of features that are off,
// and validates the specifications. It does so for pods and for pod templates of controllers.
// Defaults, field paths and messages are those of Kubernetes.
//
// A template is stored with the defaults of DefaultSpec only. DefaultPod adds the defaults that
// only pods get. So a new default does not change stored templates, which would cause a rollout.
//
// All functions are pure: they do no I/O and keep no state.
package podspec
