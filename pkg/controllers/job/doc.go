// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package job runs the pods of each Job until enough have succeeded or the Job has failed.
//
// Every pod has the finalizer batch.kubernetes.io/job-tracking until its end is counted. Each pod
// is counted exactly once, even if the controller or a write fails at any point:
//
//  1. The controller writes the UIDs of ended pods to the job's status. For succeeded pods of
//     Indexed jobs it writes their indexes, which are counted directly.
//  2. Only then does it remove the finalizer from these pods.
//  3. Only when a pod has lost the finalizer does its UID leave the status, in the same write that
//     increases the counter.
//
// A survey holds what the caches show of a job. All decisions are pure functions of it, and sync
// carries them out in the order above. The controller remembers its own writes in memory until the
// caches show them. The number of consecutive failures, which determines the back-off, is also kept
// in memory and starts at zero after a restart.
package job
