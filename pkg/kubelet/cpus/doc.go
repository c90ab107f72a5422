// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpus gives CPUs of the node to containers for themselves: Kubernetes' CPU
// manager with its static policy.
//
// A container of a Guaranteed pod that asks for whole CPUs gets as many, near to each
// other, and no other container runs on them; all the rest share what is left. With the
// policy "none" everybody runs everywhere.
//
// Which CPUs are taken is a pure function of the machine's layout and the CPUs that are
// free. What was given is kept in a file that Kubernetes' own kubelet reads, and given
// back when nothing of the pod runs any more. A file that does not fit the machine or the
// configuration keeps the kubelet from starting, because containers may run on CPUs that
// it would give away.
package cpus
