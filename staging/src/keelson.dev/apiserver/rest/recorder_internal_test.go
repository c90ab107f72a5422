// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// brokenWriter is a response writer whose flush fails.
type brokenWriter struct {
	http.ResponseWriter
	err error
}

func (w brokenWriter) FlushError() error { return w.err }

// TestRecorderFlush checks that Flush of the recorder returns the error of the writer below it.
func TestRecorderFlush(t *testing.T) {
	broken := errors.New("connection is closed")
	rec := &recorder{ResponseWriter: brokenWriter{httptest.NewRecorder(), broken}}
	if err := http.NewResponseController(rec).Flush(); !errors.Is(err, broken) {
		t.Errorf("flush: %v", err)
	}
	flushed := httptest.NewRecorder()
	(&recorder{ResponseWriter: flushed}).Flush()
	if !flushed.Flushed {
		t.Error("Flush does not reach the connection")
	}
}
