// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command web is a small web server for the quick start in the documentation. It can replace nginx
// in manifests: it serves the files below /usr/share/nginx/html on port 80, and logs each request
// to standard output in nginx's combined format. It responds to /hostname with its host name, so
// that clients can see which replica has responded.
//
// After SIGTERM or SIGQUIT, it continues to accept connections for a short time, because nodes
// remove a terminating pod from its Services only after a delay. Then it completes the open
// requests and exits.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	root       = "/usr/share/nginx/html"
	lameDuck   = 2 * time.Second
	patience   = 20 * time.Second
	timeLayout = "02/Jan/2006:15:04:05 -0700"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer stop()
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	leaving := &atomic.Bool{}
	server := &http.Server{
		Addr:              ":80",
		Handler:           logged(out, closing(leaving, routes(host))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	done := make(chan error, 1)
	go func() { done <- server.ListenAndServe() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	leaving.Store(true)
	time.Sleep(lameDuck)
	last, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func routes(host string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, host) })
	mux.Handle("/", http.FileServer(http.Dir(root)))
	return mux
}

// closing is a handler that sets the header Server. During shutdown it also sets a header that
// makes clients use a new connection.
func closing(leaving *atomic.Bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "keelson-web")
		if leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// logged is a handler that logs one line for each request, in the combined format.
func logged(out io.Writer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(rec, r)
		client, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			client = r.RemoteAddr
		}
		fmt.Fprintf(out, "%s - - [%s] %q %d %d %q %q\n", client, time.Now().Format(timeLayout),
			r.Method+" "+r.RequestURI+" "+r.Proto, rec.status, rec.bytes, dash(r.Referer()), dash(r.UserAgent()))
	})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// recorder records the status and size of a response for the log.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}
