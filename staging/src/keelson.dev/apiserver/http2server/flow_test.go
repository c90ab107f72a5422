// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"keelson.dev/apiserver/http2server/http2test"
)

// limit is the WriteTimeout in these tests: how long a client may block the server.
const limit = 500 * time.Millisecond

func writeLimit(s *http.Server) { s.WriteTimeout = limit }

// sized is a handler that responds with the first part of the pattern. The path is the number of
// bytes.
func sized(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Path[1:])
	_, _ = w.Write(pattern(0, n)) // fails if the client has closed the connection
}

// TestWindows uses a client that enlarges windows at random and changes the initial window. The
// server must never send more than the windows allow, and must send all responses completely in the
// end.
func TestWindows(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			address := http2test.Serve(t, http.HandlerFunc(sized))
			account(t, address, rand.New(rand.NewPCG(seed, 0)), map[uint32]int{1: 3 << 20, 3: 2_000_000, 5: 3 << 20, 7: 16})
		})
	}
}

// account requests responses of the sizes in want, by stream. It keeps its own account of the
// windows and checks each DATA frame against it.
func account(t *testing.T, address string, random *rand.Rand, want map[uint32]int) {
	// most is the maximum number of bytes by which a stream's initial window exceeds 64 KiB.
	most := []int{1, 1 << 20}[random.IntN(2)]
	initial := int64(64<<10 + random.IntN(most))
	c := http2test.Dial(t, address, 1<<20, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(initial)})
	all := int64(64<<10 - 1 + 1<<20)
	windows, owed, got := map[uint32]int64{}, map[uint32]int64{}, map[uint32]int{}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		windows[id] = initial
		c.Get(id, fmt.Sprint("/", want[id]))
	}
	unheard := 1 // number of SETTINGS frames that the server has not acknowledged yet
	for open := len(want); open > 0; {
		f, err := c.ReadFrame()
		c.Must(err)
		if s, ok := f.(*http2.SettingsFrame); ok && s.IsAck() {
			unheard--
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			if g, ok := f.(*http2.GoAwayFrame); ok {
				t.Fatalf("the server goes away: %v", g.ErrCode)
			}
			continue
		}
		id, n := d.StreamID, int64(d.Length)
		all, windows[id] = all-n, windows[id]-n
		owed[0], owed[id] = owed[0]+n, owed[id]+n
		if all < 0 || windows[id] < 0 && unheard == 0 {
			t.Fatalf("stream %d has been sent more than was granted: %d, all %d", id, windows[id], all)
		}
		if !bytes.Equal(d.Data(), pattern(got[id], len(d.Data()))) {
			t.Fatalf("stream %d: wrong after %d bytes", id, got[id])
		}
		got[id] += len(d.Data())
		if d.StreamEnded() {
			open--
			delete(windows, id)
		}
		if owed[0] > 0 && (random.IntN(20) == 0 || all < 1<<14) {
			c.Must(c.WriteWindowUpdate(0, uint32(owed[0])))
			all, owed[0] = all+owed[0], 0
		}
		if _, here := windows[id]; here && owed[id] > 0 && (random.IntN(5) == 0 || windows[id] < 1<<14) {
			c.Must(c.WriteWindowUpdate(id, uint32(owed[id])))
			windows[id], owed[id] = windows[id]+owed[id], 0
		}
		if random.IntN(200) == 0 {
			now := int64(64<<10 + random.IntN(most))
			c.Must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(now)}))
			for id := range windows {
				windows[id] += now - initial
				if owed[id] > 0 { // otherwise the stream might wait forever
					c.Must(c.WriteWindowUpdate(id, uint32(owed[id])))
					windows[id], owed[id] = windows[id]+owed[id], 0
				}
			}
			initial = now
			unheard++
		}
	}
	for id, n := range want {
		if got[id] != n {
			t.Errorf("stream %d: %d bytes of %d", id, got[id], n)
		}
	}
}

// TestTinyWindow checks that a complete response arrives if the client enlarges the window by one
// byte at a time.
func TestTinyWindow(t *testing.T) {
	address := http2test.Serve(t, http.HandlerFunc(sized))
	c := http2test.Dial(t, address, 1<<20, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	c.Get(1, "/300")
	got := 0
	c.Until(func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		if !ok {
			return false
		}
		got += len(d.Data())
		if d.StreamEnded() {
			return true
		}
		c.Must(c.WriteWindowUpdate(1, 1))
		return false
	})
	if got != 300 {
		t.Errorf("got %d bytes", got)
	}
}

// TestAnswerNotRead checks that the server resets a stream after WriteTimeout if the client grants
// no window for the response, and that the connection stays usable.
func TestAnswerNotRead(t *testing.T) {
	failed := make(chan error, 1)
	address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, err := w.Write(pattern(0, 1<<20))
			failed <- err
		}
	}), writeLimit)
	c := http2test.Dial(t, address, 1<<30)
	c.Get(1, "/large")
	if c.Until(http2test.Reset(1)) == nil {
		t.Error("the answer is not reset")
	}
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the handler gets %v", err)
	}
	c.Get(3, "/")
	if c.Until(http2test.Ended(3)) == nil {
		t.Error("the connection has ended")
	}
}

// TestNoDeadline checks that a handler can remove its write deadline, and can set it again to end a
// write.
func TestNoDeadline(t *testing.T) {
	failed := make(chan error, 1)
	address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetWriteDeadline(time.Time{}), control.SetReadDeadline(time.Time{})); err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/stuck" {
			time.AfterFunc(2*limit, func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
			_, err := w.Write(pattern(0, 1<<20))
			failed <- err
			return
		}
		_ = control.Flush()
		_, _ = io.Copy(w, r.Body) // this takes longer than the limit
	}), writeLimit, func(s *http.Server) { s.ReadTimeout = limit })
	c := http2test.Dial(t, address, 1<<30)
	c.Get(1, "/stuck")
	c.Must(c.Begin(3, "POST", "/", false))
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the handler gets %v", err)
	}
	c.Must(c.WriteData(3, true, []byte("abc")))
	if f, ok := c.Until(func(f http2.Frame) bool {
		return f.Header().StreamID == 3 &&
			f.Header().Type != http2.FrameHeaders
	}).(*http2.DataFrame); !ok {
		t.Error("the other answer was cut off")
	} else if string(f.Data()) != "abc" {
		t.Errorf("got %q", f.Data())
	}
}

// TestReadTimeout checks that reading a body fails after ReadTimeout if the client does not send
// it.
func TestReadTimeout(t *testing.T) {
	failed := make(chan error, 1)
	address := http2test.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
	}), func(s *http.Server) { s.ReadTimeout = limit })
	c := http2test.Dial(t, address, 0)
	c.Must(c.Begin(1, "POST", "/", false))
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the handler gets %v", err)
	}
	if c.Until(http2test.Ended(1)) == nil {
		t.Error("there is no answer")
	}
}

// TestConnectionNotRead checks that the server closes a connection if its client reads nothing for
// WriteTimeout, or does not enlarge the connection's window for WriteTimeout, even if the response
// has no deadline.
func TestConnectionNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		granted uint32
		reads   bool
	}{"nothing read": {1 << 30, false}, "no window": {0, true}} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 1)
			address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
				_, err := w.Write(pattern(0, 32<<20)) // more than the kernels of client and server buffer
				failed <- err
			}), writeLimit)
			c := http2test.Dial(t, address, tc.granted, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			c.Get(1, "/")
			if tc.reads && c.Until(http2test.Reset(1)) != nil {
				t.Error("the stream is reset, not the connection")
			}
			if err := <-failed; err == nil {
				t.Error("the write succeeds")
			}
		})
	}
}

// TestBodyWindow checks that a client can send no more of a body than the server's window while the
// handler does not read, and that it can send the rest when the handler reads.
func TestBodyWindow(t *testing.T) {
	read, got := make(chan struct{}), make(chan int64)
	const window, total = 100_000, 1_000_000
	address := http2test.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-read
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- n
	}), func(s *http.Server) { s.HTTP2.MaxReceiveBufferPerStream = window })
	c := http2test.Dial(t, address, 0)
	c.Must(c.Begin(1, "POST", "/", false))
	left, sent := 0, 0
	send := func() {
		for left > 0 && sent < total {
			n := min(left, 10_000, total-sent)
			c.Must(c.WriteData(1, sent+n == total, make([]byte, n)))
			left, sent = left-n, sent+n
		}
	}
	left = window
	send()
	close(read)
	for sent < total {
		f, err := c.ReadFrame()
		c.Must(err)
		if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 1 {
			left += int(u.Increment)
			send()
		}
	}
	if n := <-got; n != total {
		t.Errorf("the handler has read %d bytes", n)
	}
}

// TestTooLargeBody checks that the server ends the connection or stream of a client that sends more
// than the window allows.
func TestTooLargeBody(t *testing.T) {
	const window = 100_000
	address := http2test.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		func(s *http.Server) { s.HTTP2.MaxReceiveBufferPerStream = window })
	c := http2test.Dial(t, address, 0)
	c.Must(c.Begin(1, "POST", "/", false))
	for range window/10_000 + 1 {
		c.Must(c.WriteData(1, false, make([]byte, 10_000)))
	}
	reset, ok := c.Until(http2test.Reset(1)).(*http2.RSTStreamFrame)
	if !ok || reset.ErrCode != http2.ErrCodeFlowControl {
		t.Errorf("got %v", reset)
	}
}
