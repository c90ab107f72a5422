// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/scrape"
	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/health"
	"keelson.dev/keelson/pkg/proxy/config"
	"keelson.dev/keelson/pkg/proxy/healthcheck"
)

// rebind is the delay before an HTTP server that could not listen tries again.
const rebind = 5 * time.Second

// server is an HTTP server that serve runs.
type server struct {
	name, address string
	handler       http.Handler
	tls           *tls.Config // nil means plain HTTP
}

// servers returns the server for health checks and the server for metrics. Load balancers send
// health checks without credentials, so that server reports only whether the node accepts traffic.
func servers(cfg *config.Config, guard *daemon.Guard, h *healthcheck.Proxy, g prometheus.Gatherer,
	log *slog.Logger) ([]server, error) {
	k := &cfg.KubeProxyConfiguration
	metrics := server{name: "metrics", address: k.MetricsBindAddress, handler: metricsHandler(cfg, g, log)}
	if guard != nil {
		metrics.handler = guard.Wrap(metrics.handler)
		c := cfg.Metrics
		if host, _, err := net.SplitHostPort(k.MetricsBindAddress); err == nil {
			c.BindAddress = net.ParseIP(host)
		}
		var err error
		if metrics.tls, err = c.TLS(guard); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return []server{{name: "health", address: k.HealthzBindAddress, handler: healthHandler(h)}, metrics}, nil
}

// serve runs each server that has an address until ctx ends. If a server cannot listen, serve calls
// end if bindAddressHardFail is set, and otherwise retries.
func serve(ctx context.Context, k *kubeproxy.KubeProxyConfiguration, all []server, log *slog.Logger,
	end func(error)) *sync.WaitGroup {
	var running sync.WaitGroup
	for _, s := range all {
		if s.address == "" {
			continue
		}
		running.Go(func() {
			for ctx.Err() == nil {
				err := s.listen(ctx)
				if ctx.Err() != nil {
					return
				}
				if k.BindAddressHardFail {
					end(fmt.Errorf("%s server: %w", s.name, err))
					return
				}
				log.Error("HTTP server of the proxy ended, starting it again", "server", s.name, "err", err)
				wait(ctx, rebind)
			}
		})
	}
	return &running
}

func wait(ctx context.Context, d time.Duration) {
	t := clock.Real().NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C():
	}
}

// listen opens a listener and serves on it until ctx ends.
func (srv *server) listen(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", srv.address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{
		Handler: srv.handler, TLSConfig: srv.tls,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 64 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if srv.tls != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func healthHandler(h *healthcheck.Proxy) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", h.Healthz)
	mux.HandleFunc("/livez", h.Livez)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !h.Synced() {
			http.Error(w, "not synced yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}

func metricsHandler(cfg *config.Config, g prometheus.Gatherer, log *slog.Logger) http.Handler {
	k := &cfg.KubeProxyConfiguration
	mux := http.NewServeMux()
	text := func(path, s string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = io.WriteString(w, s)
		})
	}
	results := health.NewResults()
	mux.Handle("/healthz", health.Handler("/healthz", log, results.Watch("healthz", []health.Check{health.Ping()})...))
	mux.Handle(health.ResultsPath, results.Handler())
	text("/proxyMode", "nftables")
	mux.Handle("/metrics", scrape.Handler(g))
	mux.Handle(daemon.ConfigzPath, daemon.Configz("kubeproxy.config.k8s.io", k))
	paths := []string{daemon.ConfigzPath, "/healthz", "/metrics", "/proxyMode"}
	if k.EnableProfiling {
		paths = append(paths, "/debug/pprof")
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	pages := zpages.Handler("kube-proxy", cfg.Values, 0, paths...)
	mux.Handle(zpages.Statusz, pages)
	mux.Handle(zpages.Flagz, pages)
	return mux
}
