// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"sync"
	"time"

	"keelson.dev/api/clock"
)

const (
	// sureTimes is how many events in a row a client has answered alike before its answers are
	// left unread.
	sureTimes = 4
	// maxUnread bounds the answers that are left unread, in bytes: with one more, what TLS reads by one call.
	maxUnread = 450
	// often is the longest time between two events that are worth it.
	often = 100 * time.Millisecond
	// soon is when the answer to an event is looked for. A client that does not answer
	// may have asked for something, and waits so long.
	soon = 10 * time.Millisecond
	// longest is how long something is left unread, and twice that at most.
	longest = 500 * time.Millisecond
	// ample is how much has still to be granted by a client whose grants are left unread.
	ample = 2 << 20
)

// unread leaves a client's answers to events in the kernel, until there are many of them or something
// else has come. Go's client grants what it has read of an event at once, by a record of TLS that is
// always of the same size; to be woken for that and to read it takes as much as sending the event. So
// the socket's low-water mark (SO_RCVLOWAT in socket(7)) is kept one byte above the answers to all events
// that were sent: a request behind them is noticed at once.
//
// What is expected is learned from the connection, and any doubt ends it: other frames, in either direction, an
// answer of another size, or one that is not there when it is looked for. It is safe for concurrent use.
type unread struct {
	socket *Socket
	later  *later

	mu    sync.Mutex
	size  int // of an answer
	times int // answers in a row that were of that size
	sent  int // events since something was read
	last  time.Time

	expected int       // bytes that may lie unread
	mark     int       // of the socket; 1 if nothing is left unread
	since    time.Time // when it has not been 1
	lies     int       // bytes that do lie unread, as look has found
	// set and look are for the socket's descriptor, made once.
	set, look func(fd uintptr)

	looks, ends bool // check, end will be called
}

func newUnread(s *Socket, l *later) *unread {
	u := &unread{socket: s, later: l, mark: 1}
	u.set = func(fd uintptr) {
		// A socket that is closed says no, and nobody waits for it.
		_ = setLowWater(fd, int32(u.mark)) // at most maxUnread+1
	}
	u.look = func(fd uintptr) {
		var err error
		if u.lies, err = unreadBytes(fd); err != nil {
			u.lies = -1
		}
	}
	return u
}

// sending is called before an event is sent. room says that the client has granted much more.
func (u *unread) sending(room bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.later.clock.Now()
	hold := room && u.times >= sureTimes && now.Sub(u.last) < often
	u.sent++
	u.last = now
	if !hold && u.expected == 0 {
		return
	}
	if u.expected += u.size; !hold || u.expected > maxUnread {
		u.setLocked(1)
		return
	}
	u.setLocked(u.expected + 1)
}

// read is called when n bytes have been read.
func (u *unread) read(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.expected > 0 && (n > u.expected || n%u.size != 0):
		u.doubtLocked()
	case u.expected > 0:
		u.expected -= n
		u.setLocked(u.expected + 1)
	case u.sent == 1 && n == u.size:
		u.times++
	case u.sent == 1:
		u.size, u.times = n, 1
	default:
		u.times = 0
	}
	u.sent = 0
}

// other is called when something else than events is sent, or something else than answers
// has been read.
func (u *unread) other() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.doubtLocked()
}

func (u *unread) doubtLocked() {
	u.times, u.expected = 0, 0
	u.setLocked(1)
}

// setLocked sets the socket's mark. If as much is there already, who reads is woken. As long as less may
// be left unread, it is looked at soon.
func (u *unread) setLocked(mark int) {
	if mark > 1 {
		u.lookLocked()
	}
	if u.mark == mark {
		return
	}
	if u.mark == 1 {
		u.since = u.later.clock.Now()
	}
	u.mark = mark
	_ = u.socket.raw.Control(u.set) // fails if it is closed
}

func (u *unread) lookLocked() {
	if !u.looks {
		u.looks = true
		u.later.looks.add(u)
	}
}

// check looks whether the answers to all events have come.
func (u *unread) check() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.looks = false
	if u.mark == 1 {
		return
	}
	if u.later.clock.Now().Sub(u.last) < soon { // the last has its time as well
		u.lookLocked()
		return
	}
	if u.socket.raw.Control(u.look) != nil || u.lies != u.expected {
		u.doubtLocked()
		return
	}
	u.endLocked()
}

func (u *unread) endLocked() {
	if !u.ends {
		u.ends = true
		u.later.ends.add(u)
	}
}

// end has what lies there read, if it has for long.
func (u *unread) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ends = false
	switch {
	case u.mark == 1:
	case u.later.clock.Now().Sub(u.since) < longest:
		u.endLocked()
	default:
		u.setLocked(1)
	}
}

// later is what is to be done to the connections of a server after a while.
type later struct {
	clock       clock.Clock
	looks, ends delayed
}

func newLater(c clock.Clock) *later {
	return &later{
		clock: c,
		looks: delayed{clock: c, wait: soon, call: (*unread).check},
		ends:  delayed{clock: c, wait: longest, call: (*unread).end},
	}
}

// delayed makes calls a fixed time after they were added, in that order. Nothing runs while
// there are none.
type delayed struct {
	clock clock.Clock
	wait  time.Duration
	call  func(*unread)

	mu    sync.Mutex
	queue []due
}

type due struct {
	at time.Time
	u  *unread
}

func (d *delayed) add(u *unread) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, due{d.clock.Now().Add(d.wait), u})
	if len(d.queue) == 1 {
		d.clock.AfterFunc(d.wait, d.run)
	}
}

// run makes the calls that are due.
func (d *delayed) run() {
	for _, due := range d.take() {
		d.call(due.u)
	}
}

// take returns what is due, and has the rest called later.
func (d *delayed) take() []due {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, n := d.clock.Now(), 0
	for n < len(d.queue) && !d.queue[n].at.After(now) {
		n++
	}
	taken, rest := d.queue[:n], d.queue[n:]
	d.queue = rest
	if len(rest) == 0 {
		d.queue = nil
	} else {
		d.clock.AfterFunc(rest[0].at.Sub(now), d.run)
	}
	return taken
}
