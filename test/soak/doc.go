// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package soak runs a mixed workload on a whole cluster while it kills processes and nodes at
// random and replaces programs. Afterwards it checks that no data was lost, no pod ran twice,
// nothing was left over and no process used more and more memory.
//
// Package history has the checkers; this package creates the cluster, the workload and the faults.
// Workload and faults are drawn from a seed, which is printed.
//
// The test needs root, and the results of "make build tools images" and "hack/images.sh e2e". It is
// skipped unless KEELSON_SOAK sets its duration. Further environment variables:
//
//   - KEELSON_SOAK_EVERY: time between kills (8s in a soak of less than ten minutes, else 20s)
//   - KEELSON_SOAK_SEED: the seed (default: the time)
//   - KEELSON_SOAK_CONTROL_PLANES: number of control planes (default 2)
//   - KEELSON_SOAK_UPGRADE: directory of the programs that replace the cluster's while it runs
//     (default: the same programs)
//   - KEELSON_SOAK_REPORT: file that the report is written to
//   - KEELSON_SOAK_KEEP: if not empty, a failed cluster is left running
//
// When it fails, it keeps the logs of all processes and the history in a directory, and prints its
// path.
package soak
