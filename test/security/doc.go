// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security carries out known attacks on Kubernetes against Keelson. Most tests exploit a
// published flaw and have the number of its CVE. A test passes if the attack fails.
//
// The server is the real one with the settings of clusters that "ctl cluster" makes. Parts of nodes
// (volumes, the kubelet's server, containers' configurations) are attacked through their own Go or
// HTTP interfaces. Pods that attack each other are network namespaces that the CNI plugin has
// attached to a bridge in a namespace of its own. No test needs a container runtime.
package security
