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
	// shareFrom is the minimum number of watches of a view that share encoded events (frames).
	shareFrom = 3
	// keptFrames is the number of frames that are cached, and keptFrame the maximum size of each in
	// bytes.
	keptFrames, keptFrame = 16, 32 << 10
)

// frames caches the encoded events that a view's watches have sent last, because all these watches
// send the same events at about the same time. It is safe for concurrent use.
type frames struct {
	watches atomic.Int64

	mu   sync.Mutex
	kept [keptFrames]frame
	next int // index of the oldest frame in kept
}

// frame is one watch event, encoded in one form (JSON, protobuf or another).
type frame struct {
	rec  *store.Record
	kind store.EventType
	out  negotiate.Output
	data []byte
}

// begin counts a new watch. The caller must call end when the watch ends. When the last watch ends,
// the cached frames are freed.
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

// of returns the frame of an event in the given form. It calls encode unless the frame is cached.
// The frame must not be modified. The frame is nil if frames are not shared, or if this frame is
// too large for the cache.
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
	data, err := encode() // the lock is held, so other watches wait and use the result
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
