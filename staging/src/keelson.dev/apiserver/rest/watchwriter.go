// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"time"

	"keelson.dev/api/clock"
)

// watchWriter is the response writer of a watch. It ends the watch if the client takes too long to
// read what was written, because all events that the watch still has to send stay in memory.
type watchWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	clock   clock.Clock
	limit   time.Duration // 0 means no limit
}

func (s *Server) newWatchWriter(w http.ResponseWriter) *watchWriter {
	return &watchWriter{w, http.NewResponseController(w), s.cfg.Clock, s.cfg.StallTimeout}
}

// Write implements http.ResponseWriter.
func (w *watchWriter) Write(b []byte) (int, error) {
	defer w.begin()()
	return w.ResponseWriter.Write(b)
}

// FlushError sends what is buffered. http.ResponseController calls it.
func (w *watchWriter) FlushError() error {
	defer w.begin()()
	return w.control.Flush()
}

// Unwrap returns the underlying response writer. http.ResponseController calls it.
func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin starts the time limit for a write. The caller must call stop after the write.
func (w *watchWriter) begin() (stop func()) {
	if w.limit == 0 {
		return func() {}
	}
	ended := make(chan struct{})
	timer := w.clock.AfterFunc(w.limit, func() {
		defer close(ended)
		_ = w.control.SetWriteDeadline(time.Unix(1, 0)) // fails if the client has closed the connection
	})
	return func() {
		if !timer.Stop() {
			<-ended // the response must not be used after its handler has returned
		}
	}
}
