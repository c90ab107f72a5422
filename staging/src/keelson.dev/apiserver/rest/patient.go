// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"time"

	"keelson.dev/api/clock"
)

// patient is the response writer of a watch. It ends the watch if the client takes too long to read
// what was written, because all events that the watch has yet to send stay in memory until then.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
	clock   clock.Clock
	limit   time.Duration // 0 means no limit
}

func (s *Server) patient(w http.ResponseWriter) *patient {
	return &patient{w, http.NewResponseController(w), s.cfg.Clock, s.cfg.StallTimeout}
}

// Write implements http.ResponseWriter.
func (p *patient) Write(b []byte) (int, error) {
	defer p.begin()()
	return p.ResponseWriter.Write(b)
}

// FlushError implements the method that http.ResponseController looks for.
func (p *patient) FlushError() error {
	defer p.begin()()
	return p.control.Flush()
}

// Unwrap implements the method that http.ResponseController looks for.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// begin starts the time limit of a write. The caller calls stop when the write has returned.
func (p *patient) begin() (stop func()) {
	if p.limit == 0 {
		return func() {}
	}
	ended := make(chan struct{})
	timer := p.clock.AfterFunc(p.limit, func() {
		defer close(ended)
		_ = p.control.SetWriteDeadline(time.Unix(1, 0)) // fails if the client is gone
	})
	return func() {
		if !timer.Stop() {
			<-ended // the response must not be used after its handler has returned
		}
	}
}
