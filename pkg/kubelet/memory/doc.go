// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory sets memory and huge pages of NUMA nodes aside for containers:
// Kubernetes' memory manager with its static policy.
//
// The containers of Guaranteed pods get what they ask for from as few nodes as have
// it, and the kernel gives them memory of these nodes only. A node gives either on its
// own or together with one set of others, never both, so that what is promised of it can
// always be had. The memory manager sets nothing aside for anybody else.
//
// What was given is kept in a file as Kubernetes' own kubelet has it. A file that does
// not fit the machine or the configuration keeps the kubelet from starting.
package memory
