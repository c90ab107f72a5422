// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package job runs the pods of each Job until as many have succeeded as it asks
// for, or it has failed.
//
// Every pod carries the finalizer batch.kubernetes.io/job-tracking until its end
// is counted, and is counted exactly once, whenever the controller or a write
// dies:
//
//  1. The UIDs of ended pods (of Indexed jobs the indexes of those that
//     succeeded, which are counters by themselves) are written to the job's status.
//  2. Only then is the finalizer taken from those pods.
//  3. Only when a pod's finalizer is gone does its UID leave the status, in the
//     same write in which the counter grows.
//
// A survey is what the caches tell of a job, and all decisions are pure functions
// of it; sync carries them out in that order. What the caches do not show yet of
// the controller's own writes is kept in memory, for as long as that lasts. The
// number of consecutive failures, on which the wait for the next pod depends, is
// kept in memory as well, and starts at none when the controller does.
package job
