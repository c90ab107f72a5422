// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring checks hack/monitoring: that the dashboard and the rules for Prometheus name only
// metrics that exist, that each alert has a test, and, with promtool, that these tests pass.
// hack/monitoring/test.sh gets promtool and runs the tests.
//
// The package has no code except tests. They need neither root nor a cluster.
package monitoring
