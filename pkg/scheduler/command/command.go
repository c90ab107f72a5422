// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command implements the scheduler's process: it parses flags and the configuration file,
// takes part in leader election and serves the HTTP endpoints.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/scrape"
	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/health"
	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// resourcesPath is the path of the metrics for requests and limits of pods. They are separate from
// /metrics because there are many.
const resourcesPath = "/metrics/resources"

// defaultPort is the default port of Kubernetes' scheduler.
const defaultPort = 10259

type options struct {
	daemon.Flags
	serving  daemon.ServingFlags
	election daemon.ElectionFlags
	tracing  string // --tracing-config-file
	config   string
	features features.Options
	values   map[string]string // values of all flags, by name
}

func parse(args []string, stderr io.Writer) (*options, *configv1.KubeSchedulerConfiguration, error) {
	o := &options{
		serving:  daemon.ServingFlags{BindAddress: net.IPv4zero, SecurePort: defaultPort},
		election: daemon.DefaultElection(configv1.SchedulerDefaultLockObjectName),
	}
	fs := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.Flags.Add(fs)
	o.serving.Add(fs)
	o.election.Add(fs)
	daemon.AddTracingFile(fs, &o.tracing)
	if err := o.features.AddGates(fs); err != nil {
		return nil, nil, err
	}
	fs.StringVar(&o.config, "config", "", "file with a KubeSchedulerConfiguration; if empty, "+
		"there is one profile with the default plugins; flags on the command line replace fields of the file")
	if err := daemon.Parse(fs, args); err != nil {
		return nil, nil, err
	}
	if err := o.features.Complete(); err != nil {
		return nil, nil, err
	}
	o.values = zpages.Flags(fs)
	cfg := &configv1.KubeSchedulerConfiguration{}
	if o.config != "" {
		var err error
		if cfg, err = profile.Load(o.config); err != nil {
			return nil, nil, err
		}
	}
	if !fs.Changed("kubeconfig") {
		o.Kubeconfig = cfg.ClientConnection.Kubeconfig
	}
	if e := cfg.LeaderElection.LeaderElect; e != nil && !fs.Changed("leader-elect") {
		o.election.Enabled = *e
	}
	return o, cfg, nil
}

// New returns the main function of the process. That function returns when ctx ends, or with an
// error if the process cannot continue. plugins has plugins besides the built-in ones, and may be
// nil. A profile of the configuration file enables them by name.
func New(plugins profile.Registry) func(ctx context.Context, args []string, stderr io.Writer) error {
	return func(ctx context.Context, args []string, stderr io.Writer) error {
		return start(ctx, args, stderr, plugins)
	}
}

func start(ctx context.Context, args []string, stderr io.Writer, plugins profile.Registry) error {
	o, cfg, err := parse(args, stderr)
	if err != nil {
		return err
	}
	profiles, err := profile.Build(cfg, plugins)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if !o.features.Enabled(features.StorageCapacityScoring) {
		profiles.DisableScore(volumebinding.Name)
	}
	rc, err := daemon.RESTConfig(o.Kubeconfig, "scheduler")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	shown, err := profile.Effective(cfg, profiles)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	o.show(shown, rc)
	return run(ctx, o, client, profiles, shown, stderr)
}

// show copies the values of flags into the configuration that /configz returns.
func (o *options) show(c *configv1.KubeSchedulerConfiguration, rc *rest.Config) {
	profiling, contention := !o.serving.NoProfiling, false
	c.EnableProfiling, c.EnableContentionProfiling = &profiling, &contention
	c.LeaderElection = o.election.Configuration()
	c.ClientConnection = daemon.ClientConfiguration(o.Kubeconfig, rc)
}

func run(ctx context.Context, o *options, client kubernetes.Interface, profiles *profile.Set,
	shown *configv1.KubeSchedulerConfiguration, stderr io.Writer) error {
	log := daemon.NewLog(stderr, o.Verbosity)
	spans, err := daemon.OpenTracing(o.tracing, "scheduler")
	if err != nil {
		return err
	}
	defer spans.End(ctx, log)
	registry := daemon.NewMetrics()
	if err := errors.Join(features.Register(registry, &o.features),
		features.RegisterVersions(registry, &o.features)); err != nil {
		return err
	}
	s, err := scheduler.New(scheduler.Config{
		Client: client, Profiles: profiles, Clock: clock.Real(), Rand: clock.NewRand(), Log: log, Metrics: registry,
		Traces: spans.Pods(), NoDeviceTaintRules: !o.features.Enabled(features.DRADeviceTaintRules),
		PodGroups: o.features.Enabled(features.GenericWorkload),
	})
	if err != nil {
		return err
	}
	guard, err := daemon.NewGuard(client, o.serving.ClientCAFile)
	if err != nil {
		return err
	}
	resources := prometheus.NewRegistry()
	resources.MustRegister(s.PodResources())
	pages := zpages.Handler("kube-scheduler", o.values, o.features.Emulated, daemon.ConfigzPath, "/healthz",
		"/livez", "/metrics", resourcesPath, "/readyz")
	ready := health.NewGate("informer-sync", "caches are not filled")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { guard.Run(ctx); return nil })
	g.Go(func() error {
		return daemon.Serve(ctx, daemon.Endpoints{
			Flags: o.serving, Guard: guard, Metrics: registry, Ready: []health.Check{ready.Check()}, Log: log,
			Others: map[string]http.Handler{
				whyPath: whyHandler(s), resourcesPath: scrape.Handler(resources),
				daemon.ConfigzPath: daemon.Configz("componentconfig", shown),
				zpages.Statusz:     pages, zpages.Flagz: pages,
			},
		})
	})
	g.Go(func() error {
		if err := s.Follow(ctx); err != nil {
			return err
		}
		ready.Open()
		return daemon.Lead(ctx, o.election, client, clock.Real(), log, s.Run)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
