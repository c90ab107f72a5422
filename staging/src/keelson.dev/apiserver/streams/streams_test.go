// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"keelson.dev/apiserver/streams"
	"keelson.dev/apiserver/streams/streamstest"
)

// plain answers with as much of the pattern as its path says.
func plain(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Path[1:])
	_, _ = w.Write(pattern(0, n)) // the client may have gone
}

// TestTogether has Go's own client read answers of both kinds, which go by one connection.
func TestTogether(t *testing.T) {
	const total = 3 << 20
	address := serveTaken(t, func(s *streams.Stream, r *http.Request) {
		random := rand.New(rand.NewPCG(1, 2))
		for at := 0; at < total; {
			piece := pattern(at, min(random.IntN(20_000), total-at))
			sent, err := s.TrySend(piece)
			if err == nil && sent == streams.Nothing {
				err = s.Send(r.Context(), piece)
			}
			if err == nil && sent == streams.Partly {
				err = s.Send(r.Context(), nil)
			}
			if err != nil {
				t.Errorf("after %d bytes: %v", at, err)
				return
			}
			at += len(piece)
		}
	})
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is the test's
	defer transport.CloseIdleConnections()
	get := func(path string, want int) {
		resp, err := (&http.Client{Transport: transport}).Get("https://" + address + path)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // it has been read
		body, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(body, pattern(0, want)) {
			t.Errorf("%s: %d bytes of %d, %v", path, len(body), want, err)
		}
	}
	get("/1", 1) // so that all go by its connection
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { get("/taken", total) })
	}
	for i := range 4 {
		wg.Go(func() {
			for n := range 40 {
				size := (n * 7919 * (i + 1)) % 200_000
				get(fmt.Sprint("/", size), size)
			}
		})
	}
	wg.Wait()
}

// TestPatience lets a client read nothing: TrySend comes back, and what it has
// accepted is what the client finds later.
func TestPatience(t *testing.T) {
	read := make(chan int) // how much has been accepted
	address := serveTaken(t, func(s *streams.Stream, r *http.Request) {
		at, sent := 0, streams.Whole
		for sent != streams.Partly { // or the server is writing
			piece := pattern(at, 10_000)
			var err error
			if sent, err = s.TrySend(piece); err != nil {
				t.Error(err)
			}
			if sent != streams.Nothing {
				at += len(piece)
			}
		}
		if again, err := s.TrySend(pattern(at, 1)); again != streams.Nothing || err != nil {
			t.Errorf("while something is held: %v, %v", again, err)
		}
		read <- at
		if err := s.Send(r.Context(), pattern(at, 300_000)); err != nil {
			t.Error(err)
		}
	})
	c := dial(t, address, 1<<30, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.get(1, "/taken")
	want := <-read + 300_000
	var got []byte
	for {
		f, err := c.ReadFrame()
		c.must(err)
		if d, ok := f.(*http2.DataFrame); ok {
			got = append(got, d.Data()...)
			if d.StreamEnded() {
				break
			}
		}
	}
	if !bytes.Equal(got, pattern(0, want)) {
		t.Errorf("got %d bytes, want %d", len(got), want)
	}
}

// TestWindows keeps the accounts of a client that grants by chance, changes its mind
// about windows, and reads answers of both kinds. Nothing may be sent that was not granted.
func TestWindows(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			const total = 9 << 20 // more than is granted at once
			address := serveTaken(t, func(s *streams.Stream, r *http.Request) {
				if err := s.Send(r.Context(), pattern(0, total)); err != nil {
					t.Error(err)
				}
			})
			account(t, address, rand.New(rand.NewPCG(seed, 0)), map[uint32]int{1: total, 3: 5_000_000, 5: total, 7: 16})
		})
	}
}

// account reads streams, of which 1 and 5 are taken, and the others as long as it says.
func account(t *testing.T, address string, random *rand.Rand, want map[uint32]int) {
	most := []int{1, 1 << 20}[random.IntN(2)] // of a stream's window, beyond the default
	initial := int64(64<<10 + random.IntN(most))
	c := dial(t, address, 16<<20, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(initial)})
	all := int64(64<<10 - 1 + 16<<20)
	windows, owed, got := map[uint32]int64{}, map[uint32]int64{}, map[uint32]int{}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		n := want[id]
		windows[id] = initial
		path := fmt.Sprint("/", n)
		if id == 1 || id == 5 {
			path = "/taken"
		}
		c.get(id, path)
	}
	low := []int64{3 << 20, 1 << 14}[random.IntN(2)] // of the connection's window, when more is granted
	unheard := 1                                     // changes of which the server has not said that it knows
	for open := len(want); open > 0; {
		f, err := c.ReadFrame()
		c.must(err)
		d, ok := f.(*http2.DataFrame)
		if !ok {
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				t.Fatalf("the server goes away: %v %s", f.ErrCode, f.DebugData())
			case *http2.SettingsFrame:
				if f.IsAck() {
					unheard--
				}
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
		if owed[0] > 0 && (low > 1<<20 && random.IntN(20) == 0 || all < low) {
			c.must(c.WriteWindowUpdate(0, uint32(owed[0])))
			all, owed[0] = all+owed[0], 0
		}
		if _, here := windows[id]; here && owed[id] > 0 && (most > 1 && random.IntN(5) == 0 || windows[id] < 1<<14) {
			c.must(c.WriteWindowUpdate(id, uint32(owed[id])))
			windows[id], owed[id] = windows[id]+owed[id], 0
		}
		if random.IntN(200) == 0 {
			now := int64(64<<10 + random.IntN(most))
			c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(now)}))
			for id := range windows {
				if owed[id] > 0 { // or nothing may ever come of it again
					c.must(c.WriteWindowUpdate(id, uint32(owed[id])))
				}
				windows[id], owed[id] = windows[id]+owed[id]+now-initial, 0
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

// TestStingy has answers left to the server where the client grants little.
func TestStingy(t *testing.T) {
	taken := make(chan bool, 1)
	address := streamstest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		s, err := streams.FromContext(r.Context()).Take(r.Context(), w)
		taken <- s != nil || err != nil
		plain(w, r)
	}))
	for name, settings := range map[string][]http2.Setting{"connection": nil, "stream": {{ID: http2.SettingInitialWindowSize, Val: 100}}} {
		t.Run(name, func(t *testing.T) {
			granted := uint32(0)
			if settings != nil {
				granted = 1 << 30
			}
			c := dial(t, address, granted, settings...)
			c.get(1, "/50")
			if <-taken {
				t.Error("it was taken")
			}
			for {
				f, err := c.ReadFrame()
				c.must(err)
				if d, ok := f.(*http2.DataFrame); ok && d.Length > 0 {
					if !bytes.Equal(d.Data(), pattern(0, 50)) {
						t.Errorf("got %q", d.Data())
					}
					return
				}
			}
		})
	}
}

// TestEnds has sending end when the client ends the stream, or the connection.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(c *client) error{
		"stream":     func(c *client) error { return c.WriteRSTStream(1, http2.ErrCodeCancel) },
		"connection": func(c *client) error { return c.conn.Close() },
		"settings":   func(c *client) error { return c.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 600)) },
	} {
		t.Run(name, func(t *testing.T) {
			sent, failed := make(chan struct{}), make(chan error, 1)
			address := serveTaken(t, func(s *streams.Stream, r *http.Request) {
				if err := s.Send(r.Context(), pattern(0, 60_000)); err != nil {
					t.Error(err)
				}
				close(sent)
				failed <- s.Send(context.Background(), pattern(0, 60_000)) // waits for its window
			})
			c := dial(t, address, 1<<30)
			c.get(1, "/taken")
			for n := uint32(0); n < 60_000; {
				f, err := c.ReadFrame()
				c.must(err)
				if _, ok := f.(*http2.DataFrame); ok {
					n += f.Header().Length
				}
			}
			<-sent
			c.must(end(c))
			if err := <-failed; err == nil {
				t.Error("it was sent")
			}
		})
	}
}

// TestGivenUp has Send end with its context.
func TestGivenUp(t *testing.T) {
	failed := make(chan error, 1)
	address := serveTaken(t, func(s *streams.Stream, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		failed <- s.Send(ctx, pattern(0, 100_000))
	})
	c := dial(t, address, 1<<30)
	c.get(1, "/taken")
	go func() {
		for _, err := c.ReadFrame(); err == nil; _, err = c.ReadFrame() {
		}
	}()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
