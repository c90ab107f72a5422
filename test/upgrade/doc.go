// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade upgrades a whole cluster from Keelson with Kubernetes 1.36 to the present programs
// while clients write, and goes back.
//
// The cluster has two control planes, which share a separate etcd, and two nodes. Clients with the
// defaults of client-go write through the load balancer of the API servers during the whole test.
// The test does the following:
//
//  1. It upgrades all programs. The control plane emulates Kubernetes 1.36.
//  2. It goes back to 1.36. No object may have changed.
//  3. It upgrades again, ends the emulation, and creates objects of kinds that 1.36 does not know.
//     "ctl check-downgrade" must list them.
//  4. It replaces the controller managers, schedulers and kubelets by those of 1.36, and then one API
//     server. While both versions serve, it deletes owners and namespaces. The objects of the unknown
//     kinds must remain.
//  5. It goes back to 1.36, which must not change the stored objects that it cannot read, and
//     upgrades again.
//
// The commands of kubectl in ctl of both versions must work in each state of the cluster.
//
// In the end, each request must have been completed within 30 s, no pause between two writes may
// have been longer than 3 s, every acknowledged write must be there, and no container may have been
// restarted.
//
// The test needs root, and the results of "make build tools images", "hack/tools.sh etcd" and
// "hack/previous.sh". It is skipped unless the environment variable KEELSON_UPGRADE is set. Further
// environment variables:
//
//   - KEELSON_UPGRADE_FROM: directory of the programs of 1.36 (default: .build/previous/bin)
//   - KEELSON_UPGRADE_KEEP: if not empty, a failed cluster is left running
package upgrade
