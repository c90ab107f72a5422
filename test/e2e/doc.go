// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a whole cluster from outside: real containers on two nodes. "ctl cluster up"
// creates the cluster, and the tests run the commands that users run. The programs, images and
// tools must have been built with "make build images tools".
//
// The tests need root. They create namespaces, mounts and cgroups on the machine, and remove them
// again; therefore they run only if the environment variable KEELSON_E2E is set.
package e2e
