// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	kclock "k8s.io/utils/clock"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

// steps is a clock that goes on when it is told to.
type steps struct {
	clock.Clock // none: nothing else is asked of it

	mu    sync.Mutex
	time  time.Time
	calls []call
}

type call struct {
	at time.Time
	f  func()
}

func (s *steps) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.time
}

func (s *steps) AfterFunc(d time.Duration, f func()) kclock.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{s.time.Add(d), f})
	return nil
}

// step makes the calls that are due after d.
func (s *steps) step(d time.Duration) {
	s.mu.Lock()
	s.time = s.time.Add(d)
	var due []call
	s.calls = slices.DeleteFunc(s.calls, func(c call) bool {
		if c.at.After(s.time) {
			return false
		}
		due = append(due, c)
		return true
	})
	s.mu.Unlock()
	for _, c := range due {
		c.f()
	}
}

// line is a connection of which the server's side reads what it is told of by the kernel.
type line struct {
	t interface {
		Helper()
		Fatal(...any)
		Fatalf(string, ...any)
	}
	clock  *steps
	socket *Socket
	client net.Conn
	raw    syscall.RawConn
}

func newLine(t *rapid.T) *line {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it has served
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	r := &line{t: t, clock: &steps{}, socket: NewSocket(conn), client: client, raw: raw}
	if !r.socket.makePrompt(newLater(r.clock), 0) {
		t.Fatal("not a socket")
	}
	return r
}

func (r *line) close() {
	_ = r.client.Close()
	_ = r.socket.Close()
}

// told reports whether the kernel says within d that something is to be read.
func (r *line) told(d time.Duration) (told bool) {
	err := r.raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(d.Milliseconds()))
			if err == nil {
				told = n > 0
				return
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return told
}

func (r *line) event() {
	r.clock.step(often / 2)
	r.socket.unread.sending(true)
}

func (r *line) write(n int) {
	if _, err := r.client.Write(make([]byte, n)); err != nil {
		r.t.Fatal(err)
	}
}

// unread is how many bytes are there.
func (r *line) unread() (n int) {
	if err := r.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// read reads n bytes, once it is told of them: who reads goes on as long as there are any.
func (r *line) read(n int) {
	r.t.Helper()
	buf := make([]byte, 512)
	for told := false; n > 0; told = r.unread() > 0 {
		if !told && !r.told(10*time.Second) {
			r.t.Fatalf("nobody is told of %d bytes", n)
		}
		got, err := r.socket.Read(buf)
		if err != nil {
			r.t.Fatal(err)
		}
		n -= got
	}
	if n < 0 {
		r.t.Fatalf("%d bytes too many", -n)
	}
}

// lies waits until n bytes are there.
func (r *line) lies(n int) {
	r.t.Helper()
	for timeout := time.Now().Add(10 * time.Second); r.unread() != n; {
		if time.Now().After(timeout) {
			r.t.Fatalf("%d bytes lie there, not %d", r.unread(), n)
		}
	}
}

// left waits until n bytes are there, of which nobody is told.
func (r *line) left(n int) {
	r.t.Helper()
	if r.lies(n); r.told(0) {
		r.t.Fatalf("somebody is told of %d bytes", n)
	}
}

// learn has the client answer until its answers are left unread.
func (r *line) learn(size int) {
	for range sureTimes {
		r.event()
		r.write(size)
		r.read(size)
	}
}

// TestAnswersAreLeft reads the answers to many events by one call, and a request behind some
// of them at once.
func TestAnswersAreLeft(t *testing.T) {
	const size = 48
	rapid.Check(t, func(t *rapid.T) {
		r := newLine(t)
		defer r.close()
		r.learn(size)
		n := rapid.IntRange(1, maxUnread/size).Draw(t, "events")
		for i := range n {
			r.event()
			r.write(size)
			r.left(size * (i + 1))
		}
		switch request := rapid.IntRange(0, 50).Draw(t, "request"); {
		case request > 0:
			r.write(request)
			r.read(n*size + request)
		case n == maxUnread/size:
			r.event() // one too many
			r.read(n * size)
			r.write(size)
			r.left(size)
		default:
			for range longest / soon * 2 {
				r.clock.step(soon)
			}
			r.read(n * size)
			r.event()
			r.write(size)
			r.read(size) // that was long ago
		}
	})
}

// TestNothingIsForgotten has a client that answers as it likes, and asks for things of any
// size: all is read, and at once if all answers had come.
func TestNothingIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newLine(t)
		defer r.close()
		size := rapid.IntRange(1, 200).Draw(t, "size")
		r.learn(size)
		lies, complete := 0, true
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if lies > 0 && r.told(0) {
				r.lies(lies)
				r.read(lies)
				lies = 0
			}
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0: // no answer
				r.event()
				complete = false
			case 1: // another answer
				r.event()
				other := rapid.IntRange(1, 300).Draw(t, "other")
				r.write(other)
				lies += other
				complete = complete && other >= size
			case 2:
				r.socket.unread.other()
			case 3, 4:
				r.event()
				r.write(size)
				lies += size
			case 5:
				request := rapid.SampledFrom([]int{size, 1, 43, 1000}).Draw(t, "request")
				r.write(request)
				lies += request
				if !complete {
					r.clock.step(soon)
					r.clock.step(longest)
					r.clock.step(longest)
				}
				r.read(lies)
				lies, complete = 0, true
				if rapid.Bool().Draw(t, "learn again") {
					r.socket.unread.other()
					r.learn(size)
				}
			}
		}
	})
}
