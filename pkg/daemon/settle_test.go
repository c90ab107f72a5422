// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestReadOnly(t *testing.T) {
	const maps = `00400000-02897000 r-xp 00000000 fe:00 10944561                           /opt/with space/apiserver
Size:              37468 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
02897000-054c1000 r--p 02497000 fe:00 10944561                           /opt/with space/apiserver
Size:              45224 kB
Anonymous:             0 kB
054c1000-054c2000 r--p 050c1000 fe:00 10944561                           /opt/with space/apiserver
Size:                  4 kB
Anonymous:             4 kB
054c2000-05601000 rw-p 050c2000 fe:00 10944561                           /opt/with space/apiserver
Anonymous:             0 kB
c000000000-c001000000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 99                         /usr/lib/locale/C.utf8
Anonymous:             0 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Anonymous:             0 kB
`
	got, err := readOnly(strings.NewReader(maps), "/opt/with space/apiserver")
	want := []addresses{{0x400000, 0x2897000}, {0x2897000, 0x54c1000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := readOnly(strings.NewReader("nonsense r--p 0 0 0 /x\n"), "/x"); err == nil {
		t.Errorf("nonsense is %v", got)
	}
}

// TestCalm: a process that collects its heap is not calm, and one that does not is, after the start.
func TestCalm(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	start := c.Now()
	asked := 0
	busy := func() uint64 { // for five seconds
		asked++
		return uint64(min(asked, 10))
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan bool)
	go func() { result <- calm(ctx, c, busy) }()
	for {
		select {
		case got := <-result:
			if d := c.Since(start); !got || d < settleAfter+5*settleQuiet || d > settleAfter+7*settleQuiet {
				t.Errorf("%t after %v", got, d)
			}
			go func() { result <- calm(ctx, c, busy) }()
			cancel()
			if <-result {
				t.Error("calm, and has ended")
			}
			return
		default:
			if c.HasWaiters() {
				c.Step(time.Second)
			}
		}
	}
}

// The program goes on after its pages were dropped: this very code is read again.
func TestDropProgram(t *testing.T) {
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
}

// TestDropKeepsWrites: what a process has put into its copy of a file stays.
func TestDropKeepsWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mapped")
	size := os.Getpagesize()
	if err := os.WriteFile(path, make([]byte, 2*size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	data, err := unix.Mmap(int(f.Fd()), 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	data[0] = 1
	if err := unix.Mprotect(data, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if err := dropFile(path); err != nil {
		t.Fatal(err)
	}
	if data[0] != 1 || data[size] != 0 {
		t.Errorf("it is %d and %d now", data[0], data[size])
	}
}
