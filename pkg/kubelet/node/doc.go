// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node stands for the node in the API: it registers it, keeps its
// status true and its Lease fresh.
//
// The status is written when something of it changed, and every five minutes in
// any case; that the kubelet lives is told by the Lease alone. Labels and taints
// are set at registration; later changes by others are left alone, except for
// the labels that say what the machine is.
package node
