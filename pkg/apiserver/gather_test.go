// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"
)

// lateTimer is the timer of a connection, which a test moves on.
type lateTimer struct {
	left time.Duration // 0: it does not run
	call func()
}

func (t *lateTimer) after(d time.Duration, call func()) clock.Timer {
	t.left, t.call = d, call
	return t
}

func (t *lateTimer) C() <-chan time.Time { return nil }
func (t *lateTimer) Stop() bool          { return t.Reset(0) }
func (t *lateTimer) Reset(d time.Duration) bool {
	ran := t.left > 0
	t.left = d
	return ran
}

func (t *lateTimer) step(d time.Duration) {
	if t.left == 0 {
		return
	}
	if t.left -= min(t.left, d); t.left == 0 {
		t.call()
	}
}

// takingConn takes down what is written at a time.
type takingConn struct {
	net.Conn
	sizes []int
	all   bytes.Buffer
	err   error
}

func (c *takingConn) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	c.sizes = append(c.sizes, len(b))
	return c.all.Write(b)
}

type oneListener struct {
	net.Listener
	conn net.Conn
}

func (l oneListener) Accept() (net.Conn, error) { return l.conn, nil }

// TestGathered writes records of all sizes: what is full goes with what follows it,
// in order, or by itself after a while.
func TestGathered(t *testing.T) {
	const full = fullRecord + 22
	to, timer := &takingConn{}, &lateTimer{}
	conn, err := newGathering(oneListener{conn: to}, timer.after).Accept()
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	write := func(size int) {
		t.Helper()
		b := bytes.Repeat([]byte{byte(all.Len())}, size)
		all.Write(b)
		if n, err := conn.Write(b); n != size || err != nil {
			t.Fatal(n, err)
		}
		clear(b) // it is the writer's again
	}
	for _, size := range []int{100, full, 31, 5000, full, full, full, 31, full} {
		write(size)
	}
	if want := []int{100, full + 31, 5000, 2 * full, full + 31}; !slices.Equal(to.sizes, want) {
		t.Errorf("written %v, want %v", to.sizes, want)
	}
	timer.step(recordWait)
	write(full)
	write(40)
	if !bytes.Equal(to.all.Bytes(), all.Bytes()) {
		t.Error("something else has been written")
	}

	to.err = errors.New("gone")
	_, _ = conn.Write(make([]byte, full)) // held
	if n, err := conn.Write(make([]byte, 31)); n != 0 || !errors.Is(err, to.err) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestGatheredAnswers has header, body and end of an answer go together, and window
// updates with what follows them; what is not announced waits for nothing, and
// nothing waits for long.
func TestGatheredAnswers(t *testing.T) {
	const full = fullRecord + 22
	for _, test := range []struct {
		name     string
		announce int
		records  []int
		now      []int // what is written at once
		late     int   // what is written after recordWait, or updateWait
		wait     time.Duration
	}{
		{name: "nothing announced", records: []int{66, 300, 31}, now: []int{66, 300, 31}},
		{name: "small answer", announce: 200, records: []int{66, 231, 31}, now: []int{297, 31}},
		{name: "largest body with the end", announce: wholeFrame, records: []int{66, wholeFrame + 31, 40}, now: []int{66 + wholeFrame + 31, 40}},
		{name: "body and end", announce: wholeFrame + 1, records: []int{66, wholeFrame + 32, 31, 31}, now: []int{66 + wholeFrame + 32 + 31, 31}},
		{name: "many frames", announce: 3 * full, records: []int{66, full, 31, full, 31}, now: []int{66 + full, 31, full + 31}},
		{name: "update", records: []int{updateRecord, 40, updateRecord, full}, now: []int{updateRecord + 40, updateRecord + full}},
		{name: "update and answer", announce: 200, records: []int{updateRecord, 66, 231}, now: []int{updateRecord + 66 + 231}},
		{name: "two updates", records: []int{updateRecord, updateRecord}, now: []int{2 * updateRecord}},
		{name: "update alone", records: []int{updateRecord}, late: updateRecord, wait: updateWait},
		{name: "header alone", announce: 10, records: []int{66}, late: 66, wait: recordWait},
		{name: "update and header", announce: 10, records: []int{updateRecord, 66}, late: updateRecord + 66, wait: recordWait},
	} {
		t.Run(test.name, func(t *testing.T) {
			to, timer := &takingConn{}, &lateTimer{}
			conn, err := newGathering(oneListener{conn: to}, timer.after).Accept()
			if err != nil {
				t.Fatal(err)
			}
			if test.announce > 0 {
				conn.(*gatheredConn).Announce(test.announce)
			}
			for _, size := range test.records {
				if n, err := conn.Write(make([]byte, size)); n != size || err != nil {
					t.Fatal(n, err)
				}
			}
			if !slices.Equal(to.sizes, test.now) {
				t.Errorf("written %v, want %v", to.sizes, test.now)
			}
			if test.late == 0 {
				if timer.left > 0 {
					t.Error("something is held back")
				}
				return
			}
			if timer.step(test.wait - 1); timer.left != 1 {
				t.Errorf("it is sent after another %v", timer.left)
			}
			if timer.step(1); !slices.Equal(to.sizes, []int{test.late}) {
				t.Errorf("written %v late, want %d", to.sizes, test.late)
			}
		})
	}
}

// TestGatheredInAll has answers announced and records written in any order: all
// arrives as it was written, and nothing stays behind.
func TestGatheredInAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		to, timer := &takingConn{}, &lateTimer{}
		conn, err := newGathering(oneListener{conn: to}, timer.after).Accept()
		if err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch size := rapid.SampledFrom([]int{0, -1, 1, 31, 34, updateRecord, 36, 66, 5000, fullRecord - 1, fullRecord, fullRecord + 22}).Draw(t, "size"); size {
			case 0:
				conn.(*gatheredConn).Announce(rapid.IntRange(1, 2*fullRecord).Draw(t, "announced"))
			case -1:
				timer.step(recordWait)
			default:
				b := bytes.Repeat([]byte{byte(all.Len())}, size)
				all.Write(b)
				if n, err := conn.Write(b); n != size || err != nil {
					t.Fatal(n, err)
				}
			}
			if held := conn.(*gatheredConn).held != nil; held != (timer.left > 0) {
				t.Fatalf("held back: %t, for %v", held, timer.left)
			}
		}
		timer.step(updateWait)
		if !bytes.Equal(to.all.Bytes(), all.Bytes()) {
			t.Errorf("%d bytes, want %d", to.all.Len(), all.Len())
		}
	})
}
