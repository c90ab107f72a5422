// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

// fault is a kind of fault that a test injects into the requests and watches of a controller.
type fault string

const (
	conflict fault = "conflict" // a write fails because the object has changed
	refused  fault = "refused"  // a request fails and has no effect
	lost     fault = "lost"     // a request takes effect, but its response is lost
	crash    fault = "crash"    // the process is killed before or after a write
	late     fault = "late"     // an event is delayed
	twice    fault = "twice"    // an event is delivered twice
	cut      fault = "cut"      // a watch ends
	gone     fault = "gone"     // a watch cannot resume because its revision is too old
	old      fault = "old"      // a list returns an old state
)

// levels returns the possible probabilities of a kind of fault, in per mille. Each run draws one of
// them for each kind, so that some kinds occur alone and some together.
func (f fault) levels() [4]int {
	switch f {
	case conflict, lost:
		return [4]int{0, 0, 50, 300}
	case refused:
		return [4]int{0, 0, 30, 200}
	case crash:
		return [4]int{0, 0, 30, 150}
	case late:
		return [4]int{0, 100, 300, 700}
	case twice:
		return [4]int{0, 0, 100, 500}
	case cut:
		return [4]int{0, 0, 30, 200}
	default:
		return [4]int{0, 0, 300, 700}
	}
}

// maxCrashes limits how often the process is killed in one run. maxCuts limits how often the
// watches of one resource end in one run. A client that reads all objects with a watch starts over
// when the watch ends, so without this limit it might never read a hundred objects.
const maxCrashes, maxCuts = 6, 20

// Faults decides which faults (of requests, watches and the process) occur in one run of a
// scenario. It is safe for concurrent use.
type Faults struct {
	seed  uint64
	clock clock.Clock

	mu      sync.Mutex
	over    chan struct{} // closed when the faults have ended
	times   map[string]int
	crashes int
	cuts    map[string]int
	log     []string
	began   time.Time
}

// NewFaults returns the faults for a seed. For seed 0 there are no faults.
func NewFaults(c clock.Clock, seed uint64) *Faults {
	f := &Faults{seed: seed, clock: c, over: make(chan struct{}), times: map[string]int{},
		cuts: map[string]int{}, began: c.Now()}
	if seed == 0 {
		close(f.over)
	}
	return f
}

// End ends the faults: afterwards all requests and watches work normally.
func (f *Faults) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended() {
		close(f.over)
	}
}

func (f *Faults) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}

// Log returns a line for each fault that has occurred.
func (f *Faults) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

// hash returns a pseudo-random number that depends only on its arguments and the seed.
func (f *Faults) hash(what string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%d", f.seed, what, n)
	x := h.Sum64() // mix the bits, because the low bits of FNV depend mostly on the last input
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// hit reports whether a fault of this kind occurs now. The argument what identifies the request or
// watch. Each further call with the same arguments draws another number.
func (f *Faults) hit(kind fault, what string) bool {
	yes, _ := f.draw(kind, what)
	return yes
}

// draw is like hit, and also returns a random number to choose a variant of the fault.
func (f *Faults) draw(kind fault, what string) (bool, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended() || kind == crash && f.crashes >= maxCrashes || kind == cut && f.cuts[what] >= maxCuts {
		return false, 0
	}
	key := string(kind) + " " + what
	n := f.times[key]
	f.times[key]++
	level := kind.levels()[f.hash("level "+string(kind), 0)%4]
	x := f.hash(key, n)
	if int(x%1000) >= level {
		return false, 0
	}
	switch kind {
	case crash:
		f.crashes++
	case cut:
		f.cuts[what]++
	}
	f.log = append(f.log, fmt.Sprintf("%v %s #%d", f.clock.Since(f.began), key, n))
	return true, x / 1000
}

// lateness returns the delay of an event, given a random number.
func lateness(x uint64) time.Duration {
	most := [4]time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 20 * time.Second}[x%4]
	return time.Duration(x / 4 % uint64(most))
}
