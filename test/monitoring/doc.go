// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring checks hack/monitoring: that the dashboard and the Prometheus rules use only
// metrics that exist, that each alert has a test, and, if promtool is installed, that these tests
// pass. hack/monitoring/test.sh downloads promtool and runs the tests.
//
// TestCluster also runs Prometheus beside a real cluster, if the environment variable
// KEELSON_MONITORING is set. It needs root. The other tests need neither root nor a cluster.
//
// The package contains only tests.
package monitoring
