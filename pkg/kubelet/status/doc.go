// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the API status of pods from what the runtime has of them, and writes it.
//
// Compute is pure: the same pod and observation give the same status. The Manager keeps the newest
// status of each pod and writes the difference to the API with a strategic merge patch, which never
// touches conditions of other writers. It deletes pods from the API once the kubelet has released
// all that they held. Writes are retried; a newer status replaces an older one that is still
// waiting.
package status
