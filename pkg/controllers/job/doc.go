// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package job contains the controllers of Jobs. One runs the pods of each Job until enough pods have
// succeeded or the Job has failed. The other one, in expiry.go, deletes finished Jobs when the time in
// spec.ttlSecondsAfterFinished has passed.
//
// # Running the pods
//
// Every pod has the finalizer batch.kubernetes.io/job-tracking until its end is counted. The
// controller counts each pod exactly once, even if the controller or a write fails at any point:
//
//  1. The controller writes the UIDs of ended pods to the job's status. For succeeded pods of
//     Indexed jobs it writes their indexes instead, which counts them directly.
//  2. Only then does it remove the finalizer from these pods.
//  3. Only after a pod has lost the finalizer does the controller remove its UID from the status.
//     The same write increases the counter.
//
// The type survey holds what the caches show of a job. All decisions are functions of a survey that
// do no I/O, and sync carries them out in the order above. The controller keeps its own writes in
// memory until the caches show them. It also keeps the number of consecutive failures in memory,
// which determines the back-off; after a restart this number starts at zero.
package job
