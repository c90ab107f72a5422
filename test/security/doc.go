// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security attacks Keelson as others have attacked Kubernetes: each test
// carries out the exploit of a published flaw, by the number of its CVE, and
// passes when no harm is done.
//
// The server is the real one with the settings of clusters that "ctl cluster"
// makes. What needs a node's parts (volumes, the kubelet's server, containers'
// configurations) is attacked by those parts' own interfaces. Pods that attack
// each other are network namespaces that the CNI plugin has attached to a bridge
// in a namespace of its own. No test needs a container runtime.
package security
