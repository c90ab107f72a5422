// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpus assigns CPUs exclusively to containers: Kubernetes' CPU manager with its static
// policy.
//
// A container of a Guaranteed pod that requests whole CPUs gets that many, close to each other, and
// no other container runs on them. All other containers share the rest. With the policy "none" all
// containers share all CPUs.
//
// The choice of CPUs is a pure function of the machine's layout and the free CPUs. Assignments are
// stored in a file with the format of Kubernetes' kubelet and released when nothing of the pod runs
// any more. If the file does not match the machine or the configuration, the kubelet does not
// start, because containers may be running on CPUs that it would assign to others.
package cpus
