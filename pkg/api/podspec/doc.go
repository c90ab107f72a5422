// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podspec says what a pod's specification means, wherever it stands: in
// a pod, or in the template of a controller. It fills defaults, drops the fields
// of features that are off, and validates, with Kubernetes' defaults, field
// paths and messages.
//
// A template is stored as the user wrote it, with the defaults of DefaultSpec
// only; DefaultPod adds what only a pod gets, so that a rollout is not caused by
// a default that is younger than the template.
//
// Everything here is pure.
package podspec
