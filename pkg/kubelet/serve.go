// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/health"
	"keelson.dev/keelson/pkg/kubelet/server"
)

// serverConfig is what the HTTPS server asks of the kubelet.
func (k *Kubelet) serverConfig() server.Config {
	c := k.cfg.Kubelet
	containers := prometheus.NewRegistry()
	containers.MustRegister(k.series())
	return server.Config{
		Containers: containers,
		Address:    net.JoinHostPort(c.Address, strconv.Itoa(int(c.Port))), Kubelet: c, NodeName: k.cfg.NodeName, CertDir: k.cfg.CertDir,
		NodeAddresses: append([]string{k.cfg.Hostname}, k.cfg.NodeIPs...), Client: k.cfg.Client,
		Pods: k, Runtime: &streams{k}, Stats: &usage{k}, Drivers: k.drivers.Bridge,
		Health:  []health.Check{health.Ping(), {Name: "syncloop", Run: func(context.Context) error { return k.loop.check() }}},
		Metrics: k.cfg.Metrics, ProbeMetrics: k.probeMetrics, Register: k.cfg.Metrics,
		Flags: k.cfg.Flags, LogDir: logDir, Clock: k.cfg.Clock, Log: k.cfg.Log, GetCertificate: k.cfg.GetCertificate, Tracing: k.cfg.Tracing,
	}
}

const (
	readHeaderTimeout = 10 * time.Second
	shutdownTimeout   = 2 * time.Second
)

// health serves /healthz on a port of its own, as Kubernetes does.
func (k *Kubelet) health(ctx context.Context, h http.Handler) error {
	c := k.cfg.Kubelet
	if c.HealthzPort == nil || *c.HealthzPort == 0 {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.HealthzBindAddress, strconv.Itoa(int(*c.HealthzPort))))
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: readHeaderTimeout}
	defer context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = s.Shutdown(ctx) // what is open then is cut when the process ends
	})()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}
