// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command runs the proxy as a process: its configuration, its client, and its servers for
// health and metrics.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/netpolicy"
	"keelson.dev/keelson/pkg/proxy"
	"keelson.dev/keelson/pkg/proxy/announce"
	"keelson.dev/keelson/pkg/proxy/config"
	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Run runs the proxy with the command line args until ctx ends.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	cfg, err := config.Parse(args, stderr)
	if err != nil {
		return err
	}
	log := daemon.NewLog(stderr, cfg.Verbosity)
	if cfg.Cleanup {
		return cleanup()
	}
	spans, err := daemon.OpenTracing(cfg.TracingFile, "proxy")
	if err != nil {
		return err
	}
	defer spans.End(ctx, log)
	rest, err := daemon.RESTConfig(cfg.ClientConnection.Kubeconfig, "kube-proxy")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	custom, err := dynamic.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("client of custom resources: %w", err)
	}
	return run(ctx, cfg, client, custom, spans, log)
}

func run(ctx context.Context, cfg *config.Config, client kubernetes.Interface, custom dynamic.Interface,
	spans *daemon.Tracing, log *slog.Logger) error {
	if cfg.Mode != "nftables" {
		log.Info("Proxy mode is not supported, using nftables", "mode", cfg.Mode)
	}
	newTuner(log).apply(&cfg.KubeProxyConfiguration)
	registry := daemon.NewMetrics()
	if err := features.Register(registry, &features.Options{}); err != nil {
		return err
	}
	events := newEvents(client, cfg.Hostname)
	defer events.broadcaster.Shutdown()
	started := make(chan struct{})
	p, err := proxy.New(proxyConfig(cfg), proxy.Deps{
		Client: client, Clock: clock.Real(), Log: log, Metrics: registry, Event: events.service,
		Tracer:  spans.Tracer("keelson.dev/keelson/pkg/proxy"),
		Started: func() { events.node("Starting", ""); close(started) },
	})
	if err != nil {
		return err
	}
	var guard *daemon.Guard
	if cfg.SecureMetrics {
		if guard, err = daemon.NewGuard(client, cfg.Metrics.ClientCAFile); err != nil {
			return err
		}
	}
	all, err := servers(cfg, guard, p.Health(), registry, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := serve(ctx, &cfg.KubeProxyConfiguration, all, log, cancel)
	if guard != nil {
		served.Go(func() { guard.Run(ctx) })
	}
	if cfg.NetworkPolicy {
		agent, err := netpolicy.New(policyConfig(cfg),
			netpolicy.Deps{Client: client, Custom: custom, Clock: clock.Real(), Log: log, Metrics: registry})
		if err != nil {
			return err
		}
		served.Go(func() {
			select {
			case <-ctx.Done():
			case <-started: // closed after the API server has answered
				if err := agent.Run(ctx); err != nil {
					cancel(fmt.Errorf("network policies: %w", err))
				}
			}
		})
	}
	err = p.Run(ctx)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	cancel(nil)
	served.Wait()
	return err
}

// proxyConfig converts a validated configuration to package proxy's Config.
func proxyConfig(c *config.Config) proxy.Config {
	k := &c.KubeProxyConfiguration
	out := proxy.Config{
		Node: c.Hostname, Families: families(), MasqueradeAll: k.NFTables.MasqueradeAll,
		MasqueradeBit: uint(*k.NFTables.MasqueradeBit),
		Audit:         k.NFTables.SyncPeriod.Duration, HealthTimeout: 2 * k.NFTables.SyncPeriod.Duration,
	}
	if k.Mode == "iptables" {
		out.MasqueradeAll = out.MasqueradeAll || k.IPTables.MasqueradeAll
	}
	out.NodeIP, _ = netip.ParseAddr(k.BindAddress)
	switch k.DetectLocalMode {
	case config.ByClusterCIDR:
		out.Pods, out.PodRanges = kernel.ByRange, prefixes(config.ClusterCIDRs(k))
	case config.ByNodeCIDR:
		out.Pods, out.PodsOfNode = kernel.ByRange, true
	case config.ByBridge:
		out.Pods, out.Interface = kernel.ByInterface, k.DetectLocal.BridgeInterface
	case config.ByInterfacePrefix:
		out.Pods, out.Interface = kernel.ByPrefix, k.DetectLocal.InterfaceNamePrefix
	}
	out.NodePorts, out.NodePortsPrimary = nodePorts(k.NodePortAddresses)
	return out
}

// nodePorts returns the ranges of node addresses that have node ports. primary means that the node's
// first address of each IP family has them too.
func nodePorts(list []string) (ranges []netip.Prefix, primary bool) {
	for _, s := range list {
		switch s {
		case config.Primary:
			primary = true
		case config.Localhost:
			ranges = append(ranges, prefixes([]string{"127.0.0.0/8", "::1/128"})...)
		case config.All:
			ranges = append(ranges, prefixes([]string{"0.0.0.0/0", "::/0"})...)
		default:
			ranges = append(ranges, prefixes([]string{s})...)
		}
	}
	return ranges, primary
}

func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s).Masked())
	}
	return out
}

// families returns the IP families that the machine supports.
func families() []ruleset.Family {
	out := []ruleset.Family{ruleset.IPv4}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		out = append(out, ruleset.IPv6)
	}
	return out
}

// policyConfig converts a validated configuration to package netpolicy's Config.
func policyConfig(c *config.Config) netpolicy.Config {
	return netpolicy.Config{Node: c.Hostname, IPv6: slices.Contains(families(), ruleset.IPv6),
		Audit: c.NFTables.SyncPeriod.Duration}
}

// cleanup removes all nftables tables of the proxy and of network policies.
func cleanup() error {
	errs := []error{netpolicy.Remove(policyConfig(&config.Config{})), removeAnnounced()}
	for _, f := range families() {
		t, err := kernel.Open(kernel.Config{Family: f})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, t.Remove(), t.Close())
	}
	return errors.Join(errs...)
}

func removeAnnounced() error {
	a, err := announce.Open(0)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Remove(context.Background())
}

// events records events about this node and its services.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	nodeName    string
}

func newEvents(client kubernetes.Interface, node string) *events {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &events{b, b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kube-proxy", Host: node}), node}
}

func (e *events) node(reason, message string) {
	ref := &corev1.ObjectReference{Kind: "Node", Name: e.nodeName, UID: types.UID(e.nodeName)}
	e.recorder.Event(ref, corev1.EventTypeNormal, reason, message)
}

func (e *events) service(svc types.NamespacedName, reason, message string) {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name}
	e.recorder.Event(ref, corev1.EventTypeWarning, reason, strings.TrimSpace(message))
}
