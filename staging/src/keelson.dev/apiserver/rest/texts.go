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
	// turnsPerProcessor is how many texts of blocks are in use at once for each processor: one is
	// encoded while the others are sent.
	turnsPerProcessor = 4
	// turnTime is the maximum duration of a turn. A client that takes longer to read a text keeps
	// its buffer, but not its turn, so slow clients delay no others.
	turnTime = 50 * time.Millisecond
)

// texts are the buffers for texts of blocks. Lists take turns at using them: if fifty informers
// started at once without turns, each would have a buffer, although a processor works on only one
// at a time.
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

// use calls use with an empty buffer as soon as it has a turn. It keeps the buffer that use returns
// for the next call, unless that buffer is too large.
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
