// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"

	"keelson.dev/keelson/pkg/beneath"
)

// logsDir is the directory that /logs/ serves.
const logsDir = "/var/log"

// addLogs serves the files of logsDir. It does not follow symbolic links that lead out of the
// directory, because a pod may mount the directory as a volume and create links in it.
func (m *mux) addLogs() {
	m.handle("/logs", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "logs/")
		w.WriteHeader(http.StatusMovedPermanently)
	}))
	m.handle("/logs/", http.StripPrefix("/logs/", http.FileServerFS(beneath.Files(logsDir))))
}

// serveDebugSocket serves profiles and the changeable flags on the configured unix socket until ctx
// is done. Every user who can open the socket has access.
func (s *Server) serveDebugSocket(ctx context.Context, background *sync.WaitGroup) error {
	path := s.cfg.Debug.Socket
	if path == "" {
		return nil
	}
	// Remove the socket of a server that was killed.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("debug socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("debug socket: %w", err)
	}
	m := &mux{exact: map[string]http.Handler{}, prefixes: map[string]http.Handler{}}
	m.addProfiling(false)
	m.handle("/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
	m.addDebugFlags(s.cfg.Verbosity)
	own := func(w http.ResponseWriter, r *http.Request) { m.own(r.URL.Path).ServeHTTP(w, r) }
	server := &http.Server{Handler: http.HandlerFunc(own), ReadHeaderTimeout: readHeaderTimeout}
	background.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("Debug socket stopped", "err", err)
		}
	})
	background.Go(func() {
		<-ctx.Done()
		_ = server.Close() // errors of the server do not matter when it stops
	})
	return nil
}
