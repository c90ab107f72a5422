// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpus assigns CPUs exclusively to containers. It is Kubernetes' CPU manager with the
// policies "none" and "static".
//
// With the policy "static", a container of a Guaranteed pod that requests a whole number of CPUs
// gets that many CPUs, as close to each other as possible. No other container runs on these CPUs.
// All other containers share the remaining CPUs. With the policy "none", all containers share all
// CPUs.
//
// Which CPUs a container gets is a pure function of the machine's layout and the free CPUs.
// Assignments are stored in a file in the format of Kubernetes' kubelet, and released after all
// containers of the pod have ended. If the file does not match the machine or the configuration,
// the kubelet does not start, because it might assign CPUs on which other containers are still
// running.
package cpus
