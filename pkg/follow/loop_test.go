// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"keelson.dev/api/clock"
)

// rounds runs a loop for 59 s and calls during meanwhile. It returns the time of each round since
// the start. The round with number n, counted from 0, fails if fail(n) is true.
func rounds(t *testing.T, l Loop, during func(), fail func(n int) bool) []time.Duration {
	t.Helper()
	l.Clock = clock.Real()
	began := time.Now()
	var out []time.Duration
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx, func(context.Context) bool {
			out = append(out, time.Since(began))
			return !fail(len(out) - 1)
		})
	}()
	during()
	advance(59*time.Second - time.Since(began))
	cancel()
	<-done
	return out
}

func TestLoop(t *testing.T) {
	never := func(int) bool { return false }
	nothing := func(Signal) {}
	for name, c := range map[string]struct {
		loop   Loop
		during func(wake Signal)
		fail   func(n int) bool
		want   []time.Duration
	}{
		"first round": {Loop{}, nothing, never, []time.Duration{0}},
		"period": {
			Loop{Period: 20 * time.Second}, nothing, never,
			[]time.Duration{0, 20 * time.Second, 40 * time.Second},
		},
		"change": {
			Loop{}, func(w Signal) { advance(time.Second); w.Raise() }, never,
			[]time.Duration{0, time.Second},
		},
		"burst": {
			Loop{Settle: func(time.Duration) time.Duration { return 2 * time.Second }},
			func(w Signal) {
				advance(time.Second)
				for range 10 {
					w.Raise()
					advance(100 * time.Millisecond)
				}
			},
			never, []time.Duration{0, 3 * time.Second},
		},
		"failures": {
			Loop{FirstRetry: time.Second, LastRetry: 4 * time.Second}, nothing, func(n int) bool { return n < 5 },
			[]time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 11 * time.Second, 15 * time.Second},
		},
		"failure after success starts with the first delay": {
			Loop{FirstRetry: time.Second, LastRetry: time.Minute},
			func(w Signal) { advance(30 * time.Second); w.Raise() }, func(n int) bool { return n != 2 && n < 4 },
			[]time.Duration{0, 1 * time.Second, 3 * time.Second, 30 * time.Second, 31 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.loop.Wake = NewSignal()
				got := rounds(t, c.loop, func() { c.during(c.loop.Wake) }, c.fail)
				if !slices.Equal(got, c.want) {
					t.Errorf("rounds at %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestCheck checks that Check is called before each periodic round, and not before other rounds.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		l := Loop{Period: 25 * time.Second, Wake: NewSignal(), Check: func() { order = append(order, "check") }}
		rounds(t, l, func() { advance(time.Second); l.Wake.Raise() }, func(int) bool {
			order = append(order, "round")
			return false
		})
		if want := []string{"round", "round", "check", "round", "check", "round"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
	})
}

// TestSettleTakesTheLastRound checks that the argument of Settle is the duration of the last round.
func TestSettleTakesTheLastRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		l := Loop{Wake: NewSignal(), Settle: func(d time.Duration) time.Duration { took = append(took, d); return 0 }}
		rounds(t, l, func() { advance(10 * time.Second); l.Wake.Raise() }, func(int) bool {
			advance(3 * time.Second)
			return false
		})
		if !slices.Equal(took, []time.Duration{3 * time.Second}) {
			t.Errorf("took %v", took)
		}
	})
}

// TestStopWhileSettling checks that Run returns when its context is canceled while it waits for
// Settle's time, without another round.
func TestStopWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Loop{Wake: NewSignal(), Settle: func(time.Duration) time.Duration { return time.Hour }}
		got := rounds(t, l, func() { advance(time.Second); l.Wake.Raise() }, func(int) bool { return false })
		if len(got) != 1 {
			t.Errorf("rounds at %v", got)
		}
	})
}

// TestSignal checks that a signal that is raised several times before it is received wakes the
// receiver once.
func TestSignal(t *testing.T) {
	s := NewSignal()
	s.Raise()
	s.Raise()
	<-s
	select {
	case <-s:
		t.Error("raised twice")
	default:
	}
}

// TestChanges checks that the batches contain each of many concurrent changes exactly once.
func TestChanges(t *testing.T) {
	const writers, each = 8, 200
	c := NewChanges(func() map[string]int { return map[string]int{} })
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				c.Note(func(b *map[string]int) { (*b)[fmt.Sprint(w, i)]++ })
			}
		})
	}
	total := map[string]int{}
	for len(total) < writers*each { // if a change is lost, this loop does not end and the test times out
		<-c.Signal
		for name, n := range c.Take() {
			total[name] += n
		}
	}
	writing.Wait()
	for name, n := range total {
		if n != 1 {
			t.Errorf("%s was taken %d times", name, n)
		}
	}
	if rest := c.Take(); len(rest) > 0 {
		t.Errorf("left: %v", rest)
	}
}
