// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stream is the body of a watch's response. It delivers whole events. Depending on the faults, it
// delays or duplicates events, and ends after some event.
type stream struct {
	faults *Faults
	what   string

	// The connection to the server.

	body   io.ReadCloser
	cancel context.CancelFunc
	done   <-chan struct{}

	mu     sync.Mutex // guards the fields below
	frames []frame
	err    error
	more   chan struct{} // has a token when frames or err has changed
	rest   []byte        // part of the current event that is not read yet
	ended  bool
}

// frame is one watch event as the server sent it, with the time at which it must be delivered.
type frame struct {
	bytes []byte
	due   time.Time
	kind  string
}

func newStream(ctx context.Context, f *Faults, what, contentType string, body io.ReadCloser) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{faults: f, what: what, body: body, cancel: cancel, done: ctx.Done(), more: make(chan struct{}, 1)}
	next := protobufFrames(body)
	if strings.Contains(contentType, "json") {
		next = jsonFrames(body)
	}
	go s.receive(next)
	return s
}

// receive reads watch events from the server and decides when each must be delivered.
func (s *stream) receive(next func() ([]byte, string, error)) {
	var last time.Time
	for {
		b, kind, err := next()
		s.mu.Lock()
		if err != nil {
			s.err = err
		} else {
			due := s.faults.clock.Now()
			if hit, x := s.faults.draw(late, s.what); hit {
				due = due.Add(lateness(x))
			}
			if due.Before(last) {
				due = last
			}
			last = due
			s.frames = append(s.frames, frame{b, due, kind})
		}
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		fr, err := s.first()
		if err != nil {
			return 0, err
		}
		if err := s.wait(fr.due); err != nil {
			return 0, err
		}
		s.rest = fr.bytes
		// Duplicate only events of objects that exist, because an object is deleted only once.
		if (fr.kind == "ADDED" || fr.kind == "MODIFIED") && s.faults.hit(twice, s.what) {
			s.rest = bytes.Repeat(fr.bytes, 2)
		}
		s.ended = s.faults.hit(cut, s.what)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// first waits for the next watch event and removes it from the queue.
func (s *stream) first() (frame, error) {
	for {
		s.mu.Lock()
		if len(s.frames) > 0 {
			fr := s.frames[0]
			s.frames = s.frames[1:]
			s.mu.Unlock()
			return fr, nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return frame{}, err
		}
		select {
		case <-s.more:
		case <-s.done:
			return frame{}, context.Canceled
		}
	}
}

// wait waits until the time due or until the faults have ended.
func (s *stream) wait(due time.Time) error {
	d := due.Sub(s.faults.clock.Now())
	if d <= 0 {
		return nil
	}
	t := s.faults.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-s.faults.over:
	case <-s.done:
		return context.Canceled
	}
	return nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

const prefixLength = 4 // in protobuf, each event is preceded by its size in 4 bytes

func protobufFrames(r io.Reader) func() ([]byte, string, error) {
	return func() ([]byte, string, error) {
		var size [prefixLength]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return nil, "", err
		}
		b := make([]byte, prefixLength+int(binary.BigEndian.Uint32(size[:])))
		copy(b, size[:])
		if _, err := io.ReadFull(r, b[prefixLength:]); err != nil {
			return nil, "", err
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(b[prefixLength:]); err != nil {
			return nil, "", err
		}
		return b, e.Type, nil
	}
}

func jsonFrames(r io.Reader) func() ([]byte, string, error) {
	d := json.NewDecoder(r)
	return func() ([]byte, string, error) {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, "", err
		}
		var e struct{ Type string }
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, "", err
		}
		return append(raw, '\n'), e.Type, nil
	}
}
