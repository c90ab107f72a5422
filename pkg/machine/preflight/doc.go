// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether a machine can become part of a cluster, before anything is written
// to it.
//
// [Run] makes all checks, and returns a [Finding] for each problem. A finding says what is wrong and
// what the operator can do about it. An error prevents the installation; a warning does not. [Report]
// prints all findings, and returns an error unless the operator ignores the checks whose findings are
// errors.
//
// Checks see the machine only through a [System], so that tests can describe any machine. [Local]
// returns the System of the machine on which the process runs. Checks change nothing, except that the
// kernel may load modules for network devices that Local makes in a temporary network namespace.
package preflight
