// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package s3test gives tests a server with buckets, in the test's process. Only tests import it.
package s3test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Bucket is the name of the bucket that a new server has.
const Bucket = "backups"

// Server is a server with buckets.
type Server struct {
	*httptest.Server
	Objects *s3mem.Backend
	Next    http.Handler // handles requests without a fault

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request) bool
}

// New returns a server that does not listen. It is a handler.
func New() (*Server, error) {
	s := &Server{Objects: s3mem.New()}
	s.Next = gofakes3.New(s.Objects).Server()
	return s, errors.Join(s.Objects.CreateBucket(Bucket), s.abortUpload())
}

// abortUpload begins an upload and aborts it. Before the first upload, the server answers a request for the list
// of uploads with an error, instead of an empty list as others do.
func (s *Server) abortUpload() error {
	begin := httptest.NewRecorder()
	s.Next.ServeHTTP(begin, httptest.NewRequest(http.MethodPost, "/"+Bucket+"/first?uploads", nil))
	var upload struct {
		ID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal(begin.Body.Bytes(), &upload); err != nil {
		return err
	}
	abort := httptest.NewRequest(http.MethodDelete, "/"+Bucket+"/first?uploadId="+upload.ID, nil)
	s.Next.ServeHTTP(httptest.NewRecorder(), abort)
	return nil
}

// Start starts a server, and sets the environment variables with which clients find it.
func Start(t *testing.T) *Server {
	t.Helper()
	return start(t, httptest.NewServer)
}

// StartTLS starts a server with a certificate of an authority that only the test knows.
func StartTLS(t *testing.T) *Server {
	t.Helper()
	return start(t, httptest.NewTLSServer)
}

func start(t *testing.T, listen func(http.Handler) *httptest.Server) *Server {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	s.Server = listen(s)
	t.Cleanup(s.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "", "AWS_CA_BUNDLE": "", "AWS_ENDPOINT_URL_S3": "",
	} {
		t.Setenv(name, value)
	}
	return s
}

// Fault lets f handle all requests for which it returns true. It may be nil.
func (s *Server) Fault(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// ServeHTTP handles a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil || !fault(w, r) {
		s.Next.ServeHTTP(w, r)
	}
}

// Answer writes an error as the server does.
func Answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the message of %s</Message></Error>", code, code)
}

// CutRequest reads the first bytes of a request, and breaks the connection.
func CutRequest(r *http.Request, bytes int64) {
	_, _ = io.CopyN(io.Discard, r.Body, bytes) // a shorter request is cut, too
	panic(http.ErrAbortHandler)
}

// CutAnswer handles a request, and breaks the connection after the first bytes of the answer.
func (s *Server) CutAnswer(w http.ResponseWriter, r *http.Request, bytes int) {
	s.Next.ServeHTTP(&cut{w, bytes}, r)
	panic(http.ErrAbortHandler)
}

// cut breaks the connection after some bytes.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		if f, ok := c.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	return n, err
}
