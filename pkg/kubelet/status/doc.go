// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the API status of pods from their state in the runtime, and writes it.
//
// Compute is pure: the same pod and observation give the same status. The Manager keeps the newest
// status of each pod and writes the difference to the API with a strategic merge patch, which never
// changes the conditions that other clients write. It deletes pods from the API when the kubelet
// has released all resources that they used. Writes are retried; a newer status replaces an older
// one that is still waiting.
package status
