// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/health"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/podresources"
	"keelson.dev/keelson/pkg/kubelet/podsapi"
	"keelson.dev/keelson/pkg/kubelet/server"
)

// serving holds the kubelet's servers: the HTTPS API, the health checks, and the gRPC APIs of pods
// and of their resources.
type serving struct {
	cfg          Config
	heartbeat    *heartbeat
	server       *server.Server
	podResources *podresources.Server
	podsAPI      *podsapi.Server
}

func newServing(s *shared, pods *podParts, client *cri.Client, u *usage, h *hardware) (*serving, error) {
	config := serverConfig(s, pods.view, client, u)
	config.Drivers = pods.drivers.Bridge
	srv, err := server.New(config)
	if err != nil {
		return nil, err
	}
	root, reg := s.cfg.RootDir, s.cfg.Metrics
	return &serving{
		cfg: s.cfg, heartbeat: s.heartbeat, server: srv,
		podResources: podresources.New(filepath.Join(root, "pod-resources", "kubelet.sock"), assigned{pods.view, h}, reg),
		podsAPI: podsapi.New(filepath.Join(root, "pods-api", "pods-api.sock"), nodePods{pods.sources, pods.status},
			pods.changes, reg),
	}, nil
}

// run runs the servers and the watchdog until ctx ends.
func (s *serving) run(ctx context.Context) error {
	parts := []func(context.Context) error{
		s.podResources.Run,
		s.podsAPI.Run,
		func(ctx context.Context) error { return serveHealth(ctx, s.cfg.Kubelet, s.server.Health()) },
		func(ctx context.Context) error { return watchdog(ctx, s.cfg, s.heartbeat) },
	}
	if *s.cfg.Kubelet.EnableServer {
		parts = append(parts, s.server.Run)
	}
	return runAll(ctx, parts...)
}

// serverConfig returns the configuration of the HTTPS server. The caller adds the CSI drivers.
func serverConfig(s *shared, pods *podView, client *cri.Client, u *usage) server.Config {
	cfg, c := s.cfg, s.cfg.Kubelet
	containers := prometheus.NewRegistry()
	containers.MustRegister(u.series())
	return server.Config{
		Address: net.JoinHostPort(c.Address, strconv.Itoa(int(c.Port))), Kubelet: c, NodeName: cfg.NodeName,
		CertDir:       cfg.CertDir,
		NodeAddresses: append([]string{cfg.Hostname}, cfg.NodeIPs...), Client: cfg.Client, GetCertificate: cfg.GetCertificate,
		Pods: pods, Runtime: &streams{cfg, client}, Stats: u,
		Health: []health.Check{health.Ping(),
			{Name: "syncloop", Run: func(context.Context) error { return s.heartbeat.check() }}},
		Metrics: cfg.Metrics, ProbeMetrics: s.metrics.probes, Containers: containers, Register: cfg.Metrics,
		Flags: cfg.Flags, LogDir: logDir, Clock: cfg.Clock, Log: cfg.Log, Tracing: cfg.Tracing,
	}
}

const (
	readHeaderTimeout = 10 * time.Second
	shutdownTimeout   = 2 * time.Second
)

// serveHealth serves health checks such as /healthz over HTTP on a separate port, as Kubernetes
// does.
func serveHealth(ctx context.Context, c *kubeletconfig.KubeletConfiguration, h http.Handler) error {
	if c.HealthzPort == nil || *c.HealthzPort == 0 {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp",
		net.JoinHostPort(c.HealthzBindAddress, strconv.Itoa(int(*c.HealthzPort))))
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: readHeaderTimeout}
	defer context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = s.Shutdown(ctx) // connections that are still open are closed when the process exits
	})()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}
