// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"time"

	"keelson.dev/api/clock"
)

// patient is the answer to a watch. It is ended when its client takes too long to take what is
// written: until then all that the watch has yet to send stays in memory for it.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
	clock   clock.Clock
	limit   time.Duration // 0: none
}

func (s *Server) patient(w http.ResponseWriter) *patient {
	return &patient{w, http.NewResponseController(w), s.cfg.Clock, s.cfg.StallTimeout}
}

// Write implements http.ResponseWriter.
func (p *patient) Write(b []byte) (int, error) {
	defer p.begin()()
	return p.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (p *patient) FlushError() error {
	defer p.begin()()
	return p.control.Flush()
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// begin ends the answer after the limit, unless the function that it returns is called before.
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
			<-ended // the answer is not to be used when its handler has returned
		}
	}
}
