// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shutdown ends a node's pods before the machine shuts down: Kubernetes' graceful node
// shutdown.
//
// An inhibitor makes systemd-logind delay a shutdown, and logind announces shutdowns on the system
// bus. Then the node rejects new pods and is not ready, and pods are ended in groups of increasing
// priority, each group within its time. When all have ended or the time is over, the inhibitor is
// released. If a shutdown is cancelled, the node continues.
//
// The group of a pod is a pure function. The system bus is an interface, so that tests can replace
// it. Without logind the node works as if graceful shutdown were not configured, and logs that.
package shutdown
