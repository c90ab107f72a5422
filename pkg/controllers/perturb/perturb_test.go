// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

//go:debug randautoseed=0

package perturb_test

import (
	"flag"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/controllers/perturb"
)

var (
	seeds   = flag.Uint64("seeds", 1, "number of seeds with which each scenario runs")
	first   = flag.Uint64("first", 1, "the first seed")
	explain = flag.Bool("explain", false, "print the faults and writes of each run, and the controllers' logs")
)

func TestMain(m *testing.M) {
	flag.Parse()
	utilruntime.ErrorHandlers = nil //nolint:reassign // the default handlers of client-go sleep in real time
	// With only one processor, the order in which goroutines run varies less.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	leaktest.Main(m)
}

// TestControllers checks for every controller that, whichever faults occur, it brings the cluster
// to the same state as without faults, and then stops writing.
func TestControllers(t *testing.T) {
	for name, s := range scenarios(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compare(t, s) })
		})
	}
}

func compare(t *testing.T, s perturb.Scenario) {
	c := perturb.NewCell(t, s.Serve)
	log := slog.New(slog.DiscardHandler)
	if *explain {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	want, err := c.Run(s, 0, log)
	if err != nil {
		t.Fatal("without faults: ", err)
	}
	if len(want.State) == 0 {
		t.Fatal("the run without faults left nothing to compare")
	}
	if want.Restless > 0 {
		t.Errorf("without faults: %d writes after everything was done; last: %v", want.Restless, tail(want.Trace))
	}
	if *explain {
		t.Logf("without faults:\n%s\n%s", strings.Join(want.Trace, "\n"), strings.Join(want.State, "\n"))
	}
	run := slices.Clone(s.Found)
	for seed := *first; seed < *first+*seeds; seed++ {
		run = append(run, seed)
	}
	for _, seed := range run {
		got, err := c.Run(s, seed, log)
		if *explain {
			t.Logf("seed %d: faults:\n%s\nwrites:\n%s", seed, strings.Join(got.Faults, "\n"), strings.Join(got.Trace, "\n"))
		}
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if d := cmp.Diff(want.State, got.State); d != "" {
			t.Errorf("seed %d: state differs from the run without faults (-without +with faults):\n%s", seed, d)
		}
		if got.Restless > 0 {
			t.Errorf("seed %d: %d writes after everything was done; last: %v", seed, got.Restless, tail(got.Trace))
		}
	}
}

// tail returns the last five lines of a trace.
func tail(lines []string) []string {
	const n = 5
	return slices.Clone(lines[max(len(lines)-n, 0):])
}
