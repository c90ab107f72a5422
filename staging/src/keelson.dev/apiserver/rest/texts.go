// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"runtime"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

const (
	// turnsPerProcessor is the number of texts that may be in use at the same time for each
	// processor: one is being encoded while others are sent.
	turnsPerProcessor = 4
	// turnTime is the maximum duration of a turn (see texts). A client that takes longer to read a
	// text keeps its buffer but not its turn, so slow clients do not delay others.
	turnTime = 50 * time.Millisecond
)

// texts has the buffers for the texts of encoded blocks. A list uses a buffer only during its turn,
// and the number of turns at the same time is limited. Without turns, fifty informers that start at
// the same time would need fifty buffers, although each processor works on only one text at a time.
type texts struct {
	buffers sync.Pool // buffers of type *[]byte, which are empty
	turns   chan struct{}
	clock   clock.Clock
}

func newTexts(clk clock.Clock) *texts {
	return &texts{
		buffers: sync.Pool{New: func() any { return new([]byte) }},
		turns:   make(chan struct{}, turnsPerProcessor*runtime.GOMAXPROCS(0)),
		clock:   clk,
	}
}

// use waits for a turn and then calls the given function with an empty buffer. It keeps the buffer
// that this function returns for later calls, unless the buffer is too large.
func (t *texts) use(use func(buf []byte) ([]byte, error)) error {
	t.turns <- struct{}{}
	end := t.clock.AfterFunc(turnTime, func() { <-t.turns })
	defer func() {
		if end.Stop() {
			<-t.turns
		}
	}()
	buf := t.buffers.Get().(*[]byte)
	text, err := use((*buf)[:0])
	if cap(text) <= 4<<20 {
		*buf = text[:0]
		t.buffers.Put(buf)
	}
	return err
}
