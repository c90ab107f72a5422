// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// takingConn takes down what is written at a time.
type takingConn struct {
	net.Conn
	mu    sync.Mutex
	sizes []int
	all   bytes.Buffer
	err   error
	wrote chan struct{}
}

func (c *takingConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.sizes = append(c.sizes, len(b))
	c.wrote <- struct{}{}
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
	clk := testingclock.NewFakeClock(time.Unix(0, 0))
	to := &takingConn{wrote: make(chan struct{}, 20)}
	conn, err := newGathering(oneListener{conn: to}, clk).Accept()
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
	for range to.sizes {
		<-to.wrote
	}
	clk.Step(recordWait)
	<-to.wrote
	write(full)
	write(40)
	if !bytes.Equal(to.all.Bytes(), all.Bytes()) {
		t.Error("something else has been written")
	}

	to.mu.Lock()
	to.err = errors.New("gone")
	to.mu.Unlock()
	_, _ = conn.Write(make([]byte, full)) // held
	if n, err := conn.Write(make([]byte, 31)); n != 0 || !errors.Is(err, to.err) {
		t.Errorf("%d, %v", n, err)
	}
}
