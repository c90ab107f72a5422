// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Services runs the servers on health check node ports. Set and Close must not be called
// concurrently. The servers run in goroutines of their own.
type Services struct {
	healthy   func() bool
	addresses func() []string
	failed    func(types.NamespacedName, error)
	log       *slog.Logger
	servers   map[types.NamespacedName]*server
	running   sync.WaitGroup
}

// NewServices returns Services without servers. healthy reports whether the proxy is healthy.
// addresses returns the addresses to listen on. failed is called when a server cannot listen.
func NewServices(healthy func() bool, addresses func() []string, failed func(types.NamespacedName, error),
	log *slog.Logger) *Services {
	return &Services{healthy: healthy, addresses: addresses, failed: failed, log: log,
		servers: map[types.NamespacedName]*server{}}
}

type server struct {
	name    types.NamespacedName
	port    uint16
	healthy func() bool
	http    *http.Server

	mu    sync.Mutex
	local int // number of local endpoints; guarded by mu
}

// Set makes the server on the health check port of a service report its number of local endpoints.
// If port is 0, Set stops the server.
func (s *Services) Set(ctx context.Context, name types.NamespacedName, port uint16, local int) {
	have := s.servers[name]
	if have != nil && have.port != port {
		s.stop(have)
		have = nil
	}
	if port == 0 {
		return
	}
	if have == nil {
		have = &server{name: name, port: port, healthy: s.healthy}
		if err := s.start(ctx, have); err != nil {
			s.failed(name, err)
			return
		}
		s.servers[name] = have
	}
	have.mu.Lock()
	defer have.mu.Unlock()
	have.local = local
}

func (s *Services) start(ctx context.Context, srv *server) error {
	srv.http = &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	var listeners []net.Listener
	for _, a := range s.addresses() {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(a, strconv.Itoa(int(srv.port))))
		if err != nil {
			for _, l := range listeners {
				_ = l.Close() // an error of Close can be ignored, because nothing was served
			}
			return fmt.Errorf("listen: %w", err)
		}
		listeners = append(listeners, l)
	}
	for _, l := range listeners {
		s.running.Go(func() {
			if err := srv.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("Health check server of a service failed", "service", srv.name, "err", err)
			}
		})
	}
	return nil
}

func (s *Services) stop(srv *server) {
	_ = srv.http.Close() // closes the server's connections too
	delete(s.servers, srv.name)
}

// Close stops all servers and waits for them.
func (s *Services) Close() {
	for _, srv := range s.servers {
		s.stop(srv)
	}
	s.running.Wait()
}

// ServeHTTP returns the number of local endpoints for every path.
func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	local := s.local
	s.mu.Unlock()
	healthy := s.healthy()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	const format = "{\n\t\"service\": {\n\t\t\"namespace\": %q,\n\t\t\"name\": " +
		"%q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}"
	// An error means that the client has disconnected.
	_, _ = fmt.Fprintf(w, format, s.name.Namespace, s.name.Name, local, healthy)
}
