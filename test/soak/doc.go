// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package soak runs a mix of workloads on a whole cluster. Meanwhile it kills processes and nodes
// at random, and upgrades programs. Afterwards it checks that no data was lost, no pod ran twice,
// nothing was left over, and the memory of no process kept growing.
//
// Package history has the checkers; this package creates the cluster, the workload and the faults.
// Workloads and faults are drawn at random from a seed, which the test prints.
//
// The test needs root, and the results of "make build tools images" and "hack/images.sh e2e". The
// environment variable KEELSON_SOAK sets its duration; if the variable is not set, the test is
// skipped. Further environment variables:
//
//   - KEELSON_SOAK_EVERY: time between kills (8s in a soak of less than ten minutes, else 20s)
//   - KEELSON_SOAK_SEED: the seed (default: the time)
//   - KEELSON_SOAK_CONTROL_PLANES: number of control planes (default 2)
//   - KEELSON_SOAK_UPGRADE: directory of the programs that replace the cluster's while it runs
//     (default: the same programs)
//   - KEELSON_SOAK_REPORT: file that the report is written to
//   - KEELSON_SOAK_KEEP: if not empty, a failed cluster is left running
//
// If the test fails, it saves the logs of all processes and the history of requests in a directory,
// and prints the directory's path.
package soak
