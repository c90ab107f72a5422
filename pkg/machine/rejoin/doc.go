// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rejoin makes a control plane that still has the history of a cluster before a restore join the
// restored cluster.
//
// Watch runs in the machine's agent. It notices that a server of the cluster has shown a higher epoch than
// the store of this machine has, writes a journal, and lets systemd start the program that calls Run. Run
// takes these steps, and repeats each of them until it succeeds:
//
//  1. Stop: the flags of the control plane's programs are moved aside, so that nothing starts them, and the
//     programs end.
//  2. SetAside: the old data of etcd are moved aside.
//  3. Join: the machine's etcd becomes a member of the restored cluster, without a vote.
//  4. Vote: the member gets a vote.
//  5. Start: the programs get new flags and start.
//
// Invariants:
//
//   - Nothing happens on a machine that does not know the epoch of its own store, or whose store has the
//     highest epoch that the machine knows.
//   - No step begins before the end of the previous one is on the disk, so the process or the machine can
//     end at any time. Each step can be repeated.
//   - As long as the restored cluster cannot be joined, nothing stops and no data are moved: its etcd must answer
//     this machine before each of the first two steps.
//   - No program of the old control plane runs when its data are moved.
//   - Old data are moved aside and kept. The copy of a member that never had a vote is deleted instead, if its
//     cluster was restored again meanwhile.
//   - If the cluster is restored again meanwhile, all steps are repeated for the new epoch.
package rejoin
