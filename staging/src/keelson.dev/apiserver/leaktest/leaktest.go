// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaktest fails the tests of a package that leave goroutines behind.
//
// A package that starts goroutines has a TestMain that calls Main:
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
package leaktest

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// attempts is how often Run looks for goroutines that are still running. Each attempt takes about
// half a second, so that even on a busy machine goroutines have enough time to end, about ten
// seconds.
const attempts = 20

// Main runs m's tests and exits the process with the exit code that Run returns.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Checked is a set of tests that fail if goroutines are still running after them. It is for a
// TestMain whose tests are run by another package:
//
//	func TestMain(m *testing.M) { unshare.Run(leaktest.Checked{M: m}, unshare.Mount) }
type Checked struct{ M *testing.M }

// Run runs the tests like the function Run.
func (c Checked) Run() int { return Run(c.M) }

// Run runs m's tests and returns the exit code of the process. If all tests pass but goroutines
// that they started are still running, the exit code reports a failure.
func Run(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	// The default HTTP client keeps goroutines for idle connections. They are not leaks.
	http.DefaultClient.CloseIdleConnections()
	var err error
	for range attempts {
		if err = goleak.Find(background...); err == nil {
			return code
		}
	}
	fmt.Fprintln(os.Stderr, "goroutines still run after the tests:", err)
	return 1
}

// background lists goroutines that libraries start at import or at first use and never end.
var background = []goleak.Option{
	goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"), // one for each log file
}
