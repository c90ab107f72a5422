// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shutdown ends a node's pods before the machine goes down: Kubernetes' graceful
// node shutdown.
//
// systemd-logind is asked to wait with a shutdown (an inhibitor), and tells of one on the
// system bus. Then no pod is taken any more, the node is not ready, and pods are ended in
// groups of growing priority, each group with its time; when all are ended, or their time is
// over, the inhibitor is let go. A shutdown that is called off lets the node go on.
//
// Which pod belongs to which group is a pure function. The bus is an interface; without
// logind a node works as if no time had been configured, and logs that.
package shutdown
