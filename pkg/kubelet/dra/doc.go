// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra prepares the resource claims of pods with the drivers of dynamic resource allocation:
// Kubernetes' DRA plugin API, v1 and v1beta1.
//
// The scheduler decides which devices a claim gets and which pods may use it; both are in the
// claim's status. Before the first container of a pod starts, the drivers named in the allocation
// prepare the claim. Containers get the devices of the requests that they name, by CDI. When all
// containers of the last pod on this node that uses the claim have ended, the drivers unprepare the
// claim.
//
// Drivers report the health of devices, which the statuses of containers show. ResourceSlices of
// drivers that are not on the node are deleted, so that no pod waits for their devices.
//
// Calls are retried until the driver succeeds; all of them can be repeated. Calls in progress are
// stored in a file and survive a restart of the kubelet.
package dra
