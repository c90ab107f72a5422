// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the API status of pods from their state in the runtime, and writes it.
//
// Compute depends only on its input: equal inputs give equal statuses. The Manager keeps the newest
// status of each pod and writes changes to the API with a strategic merge patch, which never changes
// the conditions that other clients write. It deletes a pod from the API when the kubelet has
// released all resources that the pod used. Failed writes are retried. If a newer status is set
// before an older one is written, only the newer one is written.
package status
