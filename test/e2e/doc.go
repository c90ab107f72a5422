// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a whole cluster from outside: real containers on two nodes, created by "ctl
// cluster up" and used by the commands that users run. The programs, images and tools must have
// been built ("make build images tools").
//
// The tests need root. They are skipped unless KEELSON_E2E is set, because they create namespaces,
// mounts and cgroups on the machine, and remove them again.
package e2e
