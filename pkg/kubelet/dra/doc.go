// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra has the drivers of dynamic resource allocation prepare the claims of
// pods: Kubernetes' DRA plugin API, v1 and v1beta1.
//
// What devices a claim gets is decided elsewhere and stands in its status, as does
// which pods may use it. Before the first container of a pod starts, the drivers that
// the allocation names prepare the claim; containers then get the devices of the
// requests that they name, by CDI. When nothing of the last pod that uses a claim on
// this node runs any more, the drivers undo that.
//
// Drivers say how the devices are, which the statuses of containers show. What a driver
// offers that is not there is removed from the API, so that nothing waits for it here.
//
// Drivers are asked again until they have prepared, and until they have undone: both
// may be repeated, and what was begun outlives the kubelet in a file.
package dra
