// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra prepares the resource claims of pods with the drivers of dynamic resource allocation.
// It implements Kubernetes' DRA plugin API, v1 and v1beta1.
//
// The scheduler decides which devices are allocated to a claim and which pods may use the claim.
// Both are in the claim's status. Before the first container of a pod starts, the drivers of the
// allocated devices prepare the claim. A container gets the devices of the requests that it refers
// to, by their CDI names. After all containers of the last pod on the node that uses the claim have
// ended, the drivers unprepare the claim.
//
// Drivers report the health of devices, which the statuses of containers show. ResourceSlices of
// drivers that do not run on the node are deleted, so that no pod is scheduled to the node for
// their devices.
//
// Calls are retried until the driver succeeds. Drivers must accept repeated calls. A claim is
// recorded in a file before the first call, so that a restarted kubelet can continue.
package dra
