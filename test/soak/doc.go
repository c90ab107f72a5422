// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package soak runs a mixed workload on a whole cluster while its processes are
// killed at random, its programs replaced and its nodes' plugs pulled, and judges
// afterwards whether anything was lost, ran twice, leaked or grew.
//
// Package history has the checkers; this package makes the cluster, the workload and
// the trouble. Both are drawn from a seed, which is printed.
//
// The test needs root, and what "make build tools images" and "hack/images.sh e2e"
// build. It is skipped unless KEELSON_SOAK says how long it is to be. Further
// settings, all from the environment:
//
//   - KEELSON_SOAK_EVERY: time between kills (8s in a soak of less than ten minutes, else 20s)
//   - KEELSON_SOAK_SEED: what is drawn (default: the time)
//   - KEELSON_SOAK_CONTROL_PLANES: how many (2)
//   - KEELSON_SOAK_UPGRADE: directory with the programs that the cluster's are replaced
//     by while it runs (default: the same programs)
//   - KEELSON_SOAK_REPORT: file that the report is written to
//   - KEELSON_SOAK_KEEP: when not empty, a cluster that has failed is left running
//
// When it fails, the logs of all processes and the history are left in a directory
// that is printed.
package soak
