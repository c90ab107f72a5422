// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command walstore is a small database for tests. POST / appends the request's body to a log on the
// database's volume, and responds when the body is on the disk. GET / lists the bodies, one per
// line. If the volume's file system supports file locks, two processes never write the same log at
// the same time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/test/walstore/wal"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "walstore:", err)
		os.Exit(1)
	}
}

// maxRecords is the maximum number of records that are kept in memory.
const maxRecords = 100_000

type store struct {
	log *wal.Log
	mu  sync.Mutex
	all []string
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	fs := flag.NewFlagSet("walstore", flag.ContinueOnError)
	fs.SetOutput(stderr)
	path := fs.String("log", "/data/log", "file of the write-ahead log")
	listen := fs.String("listen", ":8080", "address at which the server listens")
	if err := fs.Parse(args); err != nil {
		return err
	}
	lock, err := os.OpenFile(*path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // closing only releases the lock, so an error loses no data
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock the log, which only one process may use: %w", err)
	}
	s := &store{}
	if s.log, err = wal.Open(*path, func(b []byte) { s.all = append(s.all, string(b)) }); err != nil {
		return err
	}
	server := &http.Server{Addr: *listen, Handler: s, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return s.log.Close()
}

// ServeHTTP implements http.Handler.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, strings.Join(s.all, "\n")) // fails only if the client has disconnected
		return
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wal.MaxRecord))
	if err == nil && (len(s.all) >= maxRecords || strings.Contains(string(b), "\n")) {
		err = errors.New("the store is full, or the record has several lines")
	}
	if err == nil {
		err = s.log.Append(b)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.all = append(s.all, string(b))
}
