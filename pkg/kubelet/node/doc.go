// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node registers the Node object and keeps its status and Lease up to date.
//
// The status is written when it changes, and otherwise every five minutes; the Lease alone shows
// that the kubelet is alive. Labels and taints are set at registration. Later changes by other
// clients are kept, except for the labels that describe the machine.
package node
