// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a whole cluster from outside: real containers on two nodes,
// made by "ctl cluster up", and handled by the commands that people use. The
// programs, images and tools must have been built ("make build images tools").
//
// The tests need root. They are skipped unless KEELSON_E2E is set, because they
// change the machine: they make namespaces, mounts and cgroups, and remove them.
package e2e
