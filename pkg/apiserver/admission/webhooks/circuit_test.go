// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
)

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestCircuitOpens(t *testing.T) {
	type call struct {
		at, took float64
		ok       bool
	}
	for name, tc := range map[string]struct {
		reason string
		calls  []call
		open   bool
	}{
		"never called": {"nothing is known", nil, false},
		"two failures": {"a row is three", []call{{0, 0, false}, {9, 0, false}}, false},
		"three at once": {"a server is being replaced",
			[]call{{0, 0, false}, {0.1, 0, false}, {1.9, 0, false}}, false},
		"three over two secs": {"it is dead", []call{{0, 0, false}, {1, 0, false}, {2, 0, false}}, true},
		"three hang together": {"they have failed for as long as they took",
			[]call{{10, 10, false}, {10, 10, false}, {10, 10, false}}, true},
		"an answer in between": {"the row begins again",
			[]call{{0, 0, false}, {1, 0, false}, {2, 0, true}, {3, 0, false}, {4, 0, false}}, false},
		"an answer at the end": {"it is back", []call{{0, 0, false}, {1, 0, false}, {2, 0, false}, {3, 0, true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &circuit{}
			for _, call := range tc.calls {
				took := time.Duration(call.took * float64(time.Second))
				if call.ok {
					c.answered(at(call.at), took)
				} else {
					c.failed(at(call.at), took, "refused")
				}
			}
			if c.isOpen() != tc.open {
				t.Errorf("open %v, want %v: %s", c.isOpen(), tc.open, tc.reason)
			}
		})
	}
}

// TestProbes checks that at most one probe of a failing webhook is in progress, and that the
// intervals between probes grow until the webhook answers one.
func TestProbes(t *testing.T) {
	c := &circuit{}
	for i := range 3 {
		c.failed(at(float64(i)), 0, "refused")
	}
	var probes []float64
	for tick := 20; tick < 100*10; tick++ {
		now := float64(tick) / 10
		if c.pass(at(now)) {
			probes = append(probes, now)
			if c.pass(at(now)) {
				t.Fatal("two probes at a time")
			}
			if got := c.health().State; got != webhookhealth.HalfOpen {
				t.Fatalf("state %s while being probed", got)
			}
			c.failed(at(now), 0, "refused")
		}
	}
	if want := []float64{3, 5, 9, 17, 32, 47, 62, 77, 92}; len(probes) != len(want) || probes[4] != want[4] ||
		probes[8] != want[8] {
		t.Errorf("probed at %v, want %v", probes, want)
	}
	c.pass(at(200))
	c.answered(at(200), time.Millisecond)
	if c.isOpen() || c.pass(at(300)) {
		t.Error("an answer does not close the circuit")
	}
}

// TestCircuitModel makes random calls fail and succeed. It checks that a circuit is closed after an
// answer and after fewer than three consecutive failures, and that the counts fit together.
func TestCircuitModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, now, row, calls, probing := &circuit{}, 0.0, 0, uint64(0), false
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Float64Range(0, 5).Draw(t, "later")
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				c.answered(at(now), time.Millisecond)
				row, probing, calls = 0, false, calls+1
			case 1:
				c.failed(at(now), time.Millisecond, "refused")
				row, probing, calls = row+1, false, calls+1
			case 2:
				c.abandoned()
				probing = false
			default:
				if c.pass(at(now)) {
					if probing {
						t.Fatal("two probes at a time")
					}
					probing = true
				}
			}
			h := c.health()
			if h.ConsecutiveFailures != row || h.Calls != calls {
				t.Fatalf("%d of %d calls failed in a row, says %+v", row, calls, h)
			}
			if row < openFailures && h.State != webhookhealth.Closed {
				t.Fatalf("%s after %d failures", h.State, row)
			}
		}
	})
}
