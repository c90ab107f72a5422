// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security carries out known attacks on Kubernetes against Keelson. Most tests exploit a
// published vulnerability, whose CVE number is in the test's name. A test passes if the attack
// fails.
//
// The tests use a real API server with the same settings as in clusters of "ctl cluster". Parts of
// nodes (volumes, the kubelet's server, containers' configurations) are attacked through their Go
// or HTTP interfaces. Pods that attack each other are network namespaces that the CNI plugin
// attaches to a bridge in another network namespace. No test needs a container runtime.
package security
