// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/spdystream"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/httpstream"

	"keelson.dev/api/clock"
)

// A runtime hands the frames that it has read to its workers, each with a queue of 50 frames. It
// stops reading from its connection when the queue of the worker that handles the input is full.
// It deals pings out to the workers in turn, and a worker answers a ping when it has passed on all
// input that arrived before it. So after an answer from each worker the queues have no input.
const (
	workers = 5
	// softFrames and hardFrames are how many frames of input, each of up to 32 KB, are sent before
	// the queues must be empty again: softFrames unless the pings would have to wait, so that some
	// frames are left for a user who interrupts a command. hardFrames and the pings together are
	// fewer than a queue can hold.
	softFrames, hardFrames = 24, 40
)

const (
	// keystrokes is the size of input that does not wait until output has been read: a user may
	// interrupt a command whose output does not end.
	keystrokes = 1 << 10
	// holdTime limits how long other input waits, because it may be what ends the output.
	holdTime = 10 * time.Second
)

// pace is a connection that reports whether its owner has read all that has arrived. Then nothing
// is left in the send queue of a runtime on the same machine either.
type pace struct {
	net.Conn
	raw   syscall.RawConn
	clock clock.Clock
	// reading is set while the owner waits for data.
	reading atomic.Bool
	// reads receives before each read.
	reads chan struct{}
}

func newPace(conn net.Conn, clk clock.Clock) (*pace, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.New("the runtime's streaming server must use TCP")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &pace{Conn: conn, raw: raw, clock: clk, reads: make(chan struct{}, 1)}, nil
}

// Read implements net.Conn.
func (p *pace) Read(b []byte) (int, error) {
	p.reading.Store(true)
	defer p.reading.Store(false)
	select {
	case p.reads <- struct{}{}:
	default:
	}
	return p.Conn.Read(b)
}

// behind reports whether data has arrived that the owner has not read, or is still handling.
func (p *pace) behind() bool {
	n := 0
	_ = p.raw.Control(func(fd uintptr) {
		if m, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil {
			n = m
		}
	})
	return n > 0 || !p.reading.Load()
}

// wait returns when the owner has read and handled all that has arrived, when end closes, or after
// holdTime.
func (p *pace) wait(end <-chan bool) {
	if !p.behind() {
		return
	}
	timer := p.clock.NewTimer(holdTime)
	defer timer.Stop()
	for p.behind() {
		select {
		case <-p.reads:
		case <-end:
			return
		case <-timer.C():
			return
		}
	}
}

// input is the stream of the command's input. It sends only what the server has room for, so that
// the server has read everything when the command ends.
type input struct {
	httpstream.Stream
	conn   *spdystream.Connection
	pace   *pace
	frames int
}

// Write discards data if the connection has ended: what matters then is what the server has sent.
func (i *input) Write(p []byte) (int, error) {
	if i.frames >= hardFrames || i.frames >= softFrames && !i.pace.behind() {
		if i.flush() != nil {
			return len(p), nil
		}
	}
	if len(p) > keystrokes {
		i.pace.wait(i.conn.CloseChan())
	}
	i.frames++
	_, _ = i.Stream.Write(p)
	return len(p), nil
}

// flush waits until the server has passed on all input.
func (i *input) flush() error {
	for range workers {
		i.pace.wait(i.conn.CloseChan())
		if _, err := i.conn.Ping(); err != nil {
			return err
		}
	}
	i.frames = 0
	return nil
}

// Close ends the input.
func (i *input) Close() error {
	i.pace.wait(i.conn.CloseChan())
	return i.Stream.Close()
}
