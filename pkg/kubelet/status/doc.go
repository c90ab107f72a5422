// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the API status of pods from what the runtime has of them, and writes it.
//
// Compute is pure: the same pod and the same observation give the same status. The Manager
// keeps the newest status of each pod, writes what differs from the API's by a strategic merge
// patch that names only the difference (conditions of others are never touched), and deletes
// pods from the API once the kubelet has given back all that they held. A status is written
// again until it is there; newer replaces older, so that nothing is written late.
package status
