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
	// turnsPerProcessor is how many texts of blocks are made and written at once for
	// each processor: one of which the text is made, others that are sent.
	turnsPerProcessor = 4
	// turnTime is how long a turn lasts at most. A client that takes longer to read
	// a text keeps its buffer, not the turn: nobody waits for slow clients.
	turnTime = 50 * time.Millisecond
)

// texts are the buffers that texts of blocks are made in. Those who list take turns:
// of fifty informers that begin together each would have a buffer otherwise, although
// a processor works at one.
type texts struct {
	buffers sync.Pool // *[]byte, empty
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

// use lends use an empty buffer, once it is its turn, and keeps what use returns for
// the next, unless an unusual object has made it large.
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
