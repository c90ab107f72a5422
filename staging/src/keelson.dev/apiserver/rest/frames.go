// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"sync"
	"sync/atomic"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
)

const (
	// shareFrom is from how many watches of a view on frames are shared.
	shareFrom = 3
	// keptFrames is how many are kept, and keptFrame how large one is at most.
	keptFrames, keptFrame = 16, 32 << 10
)

// frames are the events of a view that were sent last, as they were sent: all
// who watch get the same ones at about the same time. It is safe for concurrent use.
type frames struct {
	watches atomic.Int64

	mu   sync.Mutex
	kept [keptFrames]frame
	next int // place of the oldest
}

// frame is one event in one form.
type frame struct {
	rec  *store.Record
	kind store.EventType
	out  negotiate.Output
	data []byte
}

// begin counts a watch in; the function it returns counts it out.
func (f *frames) begin() (end func()) {
	f.watches.Add(1)
	return func() {
		if f.watches.Add(-1) > 0 {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.kept = [keptFrames]frame{}
	}
}

// of returns the frame of an event as out asks for it, made by encode unless
// another watch has had it made. Nobody modifies it. It is nil if it would not
// be shared, or be too much to keep.
func (f *frames) of(ev *store.Event, out negotiate.Output, encode func() ([]byte, error)) ([]byte, error) {
	if ev.Record == nil || out.As == "Table" || f.watches.Load() < shareFrom {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.kept {
		if k := &f.kept[i]; k.rec == ev.Record && k.kind == ev.Type && k.out == out {
			return k.data, nil
		}
	}
	data, err := encode() // while others wait for it
	if err != nil {
		return nil, err
	}
	k := frame{ev.Record, ev.Type, out, data}
	if len(data) > keptFrame {
		k.data = nil
	}
	f.kept[f.next] = k
	f.next = (f.next + 1) % keptFrames
	return k.data, nil
}
