// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring checks hack/monitoring: that the dashboard and the Prometheus rules use only
// metrics that exist, that each alert has a test, and, if promtool is installed, that these tests
// pass. hack/monitoring/test.sh downloads promtool and runs the tests.
//
// The package contains only tests. They need neither root nor a cluster.
package monitoring
