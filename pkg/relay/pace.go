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

// A container runtime passes the frames that it has read to workers, each with a queue of 50
// frames. It stops reading from its connection when the queue of the worker that handles the input
// is full. It assigns pings to the workers in turn, and a worker answers a ping when it has handled
// all input that arrived before it. So once each worker has answered a ping, the queues contain no
// input.
const (
	workers = 5
	// After softFrames or hardFrames frames of input, of up to 32 KB each, the method flush waits
	// until the queues are empty. It does so after softFrames if no output waits to be read, and
	// otherwise after hardFrames. The difference leaves room for the frames of a user who
	// interrupts a command. hardFrames and the pings together are fewer frames than a queue can
	// hold.
	softFrames, hardFrames = 24, 40
)

const (
	// keystrokes is the maximum size, in bytes, of input that is sent although output waits to be
	// read: a user may want to interrupt a command whose output does not end.
	keystrokes = 1 << 10
	// holdTime limits how long input of more than keystrokes bytes waits until output has been read.
	// There must be a limit, because the output may end only when the command receives this input.
	holdTime = 10 * time.Second
)

// pace is a connection to a container runtime. It reports whether its owner, the code that reads
// from it, has read all data that has arrived. If so, the send queue of a runtime on the same
// machine is empty too.
type pace struct {
	net.Conn
	raw   syscall.RawConn
	clock clock.Clock
	// reading is true while the code that owns the connection waits in Read.
	reading atomic.Bool
	// Read sends a value to this channel each time that it is called, unless a value waits already.
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

// behind reports whether data has arrived that the connection's owner (the code that reads from it)
// has not read yet, or has read and still handles.
func (p *pace) behind() bool {
	n := 0
	_ = p.raw.Control(func(fd uintptr) {
		if m, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil {
			n = m
		}
	})
	return n > 0 || !p.reading.Load()
}

// wait waits until the connection's owner (the code that reads from it) has read and handled all
// data that has arrived. It returns earlier when end is closed, or after holdTime.
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

// input is the stream of the command's input. Write waits before input fills a queue of the container
// runtime, because a runtime with a full queue stops reading from its connection. If the command
// ended then, the runtime would close the connection although input is unread, and the kernel would
// drop output that the relay has not received (see package relay).
type input struct {
	httpstream.Stream
	conn   *spdystream.Connection
	pace   *pace
	frames int
}

// Write sends data. It returns no error if the connection has ended: what the runtime sent before
// the end, output and the result of the command, can still be read.
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

// flush waits until the runtime has handled all input.
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

// Close ends the input. It first waits until all output that has arrived has been read, for at most
// holdTime.
func (i *input) Close() error {
	i.pace.wait(i.conn.CloseChan())
	return i.Stream.Close()
}
