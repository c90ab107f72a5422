// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"net"
	"slices"
	"testing"
	"time"
)

// slow is a connection whose writes each take a while.
type slow struct {
	net.Conn // none: nothing else is asked of it
	clock    *steps
	deadline time.Time
	waits    []time.Duration // longest times that the writes may take
}

func (c *slow) Write(b []byte) (int, error) {
	c.waits = append(c.waits, c.deadline.Sub(c.clock.Now()))
	c.clock.step(2 * time.Second)
	return len(b), nil
}

func (c *slow) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// TestWriteDeadlines checks that each piece of a blocked write gets the whole limit, unless an earlier
// deadline ends it.
func TestWriteDeadlines(t *testing.T) {
	const stall = 10 * time.Second
	for name, tc := range map[string]struct {
		size  int
		other time.Duration // deadline that was set before; 0: none
		want  []time.Duration
	}{
		"one piece":        {maxPiece, 0, []time.Duration{stall}},
		"pieces":           {2*maxPiece + 1, 0, []time.Duration{stall, stall, stall}},
		"shorter deadline": {2 * maxPiece, 5 * time.Second, []time.Duration{5 * time.Second, 3 * time.Second}},
		"longer deadline":  {2 * maxPiece, 11 * time.Second, []time.Duration{stall, 9 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &steps{time: time.Unix(1000, 0)}
			conn := &slow{clock: clock}
			s := NewSocket(conn)
			s.unread, s.stall = newUnread(s, newLater(clock)), stall
			var other time.Time
			if tc.other > 0 {
				other = clock.Now().Add(tc.other)
				if err := s.SetWriteDeadline(other); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := s.Write(make([]byte, tc.size)); n != tc.size || err != nil {
				t.Fatalf("wrote %d bytes: %v", n, err)
			}
			if !slices.Equal(conn.waits, tc.want) {
				t.Errorf("writes may take %v, not %v", conn.waits, tc.want)
			}
			if !conn.deadline.Equal(other) {
				t.Errorf("the deadline is %v afterwards, not %v", conn.deadline, other)
			}
		})
	}
}
