// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shutdown ends a node's pods before the machine shuts down: Kubernetes' graceful node
// shutdown.
//
// The kubelet holds an inhibitor lock, with which systemd-logind delays a shutdown. logind announces
// a shutdown on the system bus. Then the node rejects new pods and reports that it is not ready. It
// ends its pods in groups, lowest priority first; each group has a maximum time. When the last group
// has ended or its time is over, the kubelet releases the lock. If the shutdown is cancelled, the
// node becomes ready again.
//
// The system bus is an interface, so that tests can replace it. Without logind the kubelet logs a
// warning and works as if graceful shutdown were not configured.
package shutdown
