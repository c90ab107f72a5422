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

	"keelson.dev/keelson/pkg/controllers/perturb"
)

var (
	seeds   = flag.Uint64("seeds", 1, "how many seeds each scenario is run with")
	first   = flag.Uint64("first", 1, "the first seed")
	explain = flag.Bool("explain", false, "tell what was disturbed and what was written, and log")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The library's own handlers of errors sleep by the machine's time.
	utilruntime.ErrorHandlers = nil
	runtime.GOMAXPROCS(1) // goroutines that are ready at the same instant run in much the same order each time
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// TestControllers: whatever is disturbed on the way, every controller brings the
// cluster to the state that it has undisturbed, and then is quiet.
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
		t.Fatal("undisturbed: ", err)
	}
	if len(want.State) == 0 {
		t.Fatal("the undisturbed run left nothing to compare")
	}
	if want.Restless > 0 {
		t.Errorf("undisturbed: %d writes when everything was done; last: %v", want.Restless, tail(want.Trace))
	}
	if *explain {
		t.Logf("undisturbed:\n%s\n%s", strings.Join(want.Trace, "\n"), strings.Join(want.State, "\n"))
	}
	run := slices.Clone(s.Found)
	for seed := *first; seed < *first+*seeds; seed++ {
		run = append(run, seed)
	}
	for _, seed := range run {
		got, err := c.Run(s, seed, log)
		if *explain {
			t.Logf("seed %d: disturbed:\n%s\nwritten:\n%s", seed, strings.Join(got.Faults, "\n"), strings.Join(got.Trace, "\n"))
		}
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if d := cmp.Diff(want.State, got.State); d != "" {
			t.Errorf("seed %d: another state than undisturbed (-undisturbed +disturbed):\n%s", seed, d)
		}
		if got.Restless > 0 {
			t.Errorf("seed %d: %d writes when everything was done; last: %v", seed, got.Restless, tail(got.Trace))
		}
	}
}

// tail is the end of a trace.
func tail(lines []string) []string {
	const n = 5
	return slices.Clone(lines[max(len(lines)-n, 0):])
}
