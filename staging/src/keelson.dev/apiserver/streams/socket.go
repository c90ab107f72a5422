// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxPiece is the most that a client has to take within the limit of a write that waits.
const maxPiece = 64 << 10

// maxBehind bounds what a Socket holds for a kernel that takes no more. A Conn sees to it that
// it is not reached; beyond it are only clients that make TLS answer and do not read.
const maxBehind = 1 << 20

var errBehind = errors.New("the client reads nothing of what it asks for")

// Socket is a connection to the kernel. It is as any other until a Conn is over it:
// then Write waits while the Conn says so, and otherwise holds what the kernel does not take at
// once, until Flush. It is safe for concurrent use; a Conn's TLS writes one record after the other.
type Socket struct {
	net.Conn
	raw syscall.RawConn // nil: always waits

	unread *unread // nil until a Conn is over it
	// stall is how long a write under a Conn waits for the kernel; 0 means no limit.
	stall time.Duration

	mu       sync.Mutex
	deadline time.Time             // for writes, as the user of the connection has set it
	limit    time.Time             // of the write that waits
	prompt   bool                  // a Conn is over it
	patient  bool                  // it waits for the kernel
	busy     bool                  // somebody does wait
	idle     sync.Cond             // told when nobody does any more
	try      func(fd uintptr) bool // writes next, and counts it in taken
	next     []byte
	taken    int
	failed   error // of try
	behind   []byte
	err      error // of a write that nobody waited for
}

// NewSocket returns a Socket over conn.
func NewSocket(conn net.Conn) *Socket {
	s := &Socket{Conn: conn}
	s.idle.L = &s.mu
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	return s
}

// Lowest is the Socket itself, by which it is found under what embeds it.
func (s *Socket) Lowest() *Socket { return s }

// makePrompt reports whether writes do not wait from now on and answers may be left unread. It must
// be called before the next read. A client that reads nothing for stall is cut off.
func (s *Socket) makePrompt(l *later, stall time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raw == nil {
		return false
	}
	s.try = s.writeNext
	s.prompt, s.stall = true, stall
	s.unread = newUnread(s, l)
	return true
}

// Read implements net.Conn.
func (s *Socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if s.unread != nil && n > 0 {
		s.unread.read(n)
	}
	return n, err
}

// setPatient says whether writes wait from here on.
func (s *Socket) setPatient(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patient = on
}

// Write implements net.Conn.
func (s *Socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if !s.prompt {
		return s.waitLocked(b)
	}
	n := 0
	if free := !s.busy && len(s.behind) == 0; free {
		if n, s.err = s.writeNow(b); s.err != nil || n == len(b) {
			return n, s.err
		}
		if s.patient {
			more, err := s.waitLocked(b[n:])
			return n + more, err
		}
	}
	if len(s.behind)+len(b)-n > maxBehind {
		s.err = errBehind
		return n, s.err
	}
	s.behind = append(s.behind, b[n:]...)
	return len(b), nil
}

// waitLocked writes b and waits until it is written or the connection's limit has passed. It
// releases the lock meanwhile.
func (s *Socket) waitLocked(b []byte) (int, error) {
	s.busy = true
	s.mu.Unlock()
	n, err := s.wait(b)
	s.mu.Lock()
	s.busy = false
	s.idle.Broadcast()
	return n, err
}

// wait writes b. It closes the connection if the client reads too little for too long, because
// everything else on the connection waits for the same client.
// The limit applies to each piece, so that a slow client that makes progress is not cut off.
func (s *Socket) wait(b []byte) (int, error) {
	if s.stall == 0 {
		return s.Conn.Write(b)
	}
	defer s.limitTo(time.Time{})
	written := 0
	for {
		s.limitTo(s.unread.later.clock.Now().Add(s.stall))
		n, err := s.Conn.Write(b[:min(len(b), maxPiece)])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = s.Conn.Close()
		}
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// limitTo sets when the write that waits has to end. The zero time means that none waits.
func (s *Socket) limitTo(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = t
	_ = s.setDeadlineLocked() // fails if it is closed
}

// SetWriteDeadline implements net.Conn. Writes that wait end by t or by their limit, whichever is
// earlier.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return s.setDeadlineLocked()
}

// SetDeadline implements net.Conn.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

func (s *Socket) setDeadlineLocked() error {
	t := s.deadline
	if t.IsZero() || !s.limit.IsZero() && s.limit.Before(t) {
		t = s.limit
	}
	return s.Conn.SetWriteDeadline(t)
}

// writeNow writes what the kernel takes at once. The lock is held.
func (s *Socket) writeNow(b []byte) (int, error) {
	s.next, s.taken, s.failed = b, 0, nil
	err := s.raw.Write(s.try)
	s.next = nil
	if err == nil {
		err = s.failed
	}
	return s.taken, err
}

func (s *Socket) writeNext(fd uintptr) bool {
	for len(s.next) > s.taken {
		n, err := send(fd, s.next[s.taken:])
		switch {
		case err == nil:
			s.taken += n
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return true
		default:
			s.failed = err
			return true
		}
	}
	return true
}

// held reports whether something is held, or waited for.
func (s *Socket) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.behind) > 0 || s.busy
}

// Flush waits until the kernel has all that is held.
func (s *Socket) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.behind) > 0 && s.err == nil {
		if s.busy { // what is held comes after what is waited for
			s.idle.Wait()
			continue
		}
		b := s.behind
		s.behind = nil
		if _, err := s.waitLocked(b); err != nil && s.err == nil {
			s.err = err
		}
	}
	return s.err
}
