// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/controllers"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/features"
)

// Run parses the flags in args and runs the controller manager. It returns when ctx ends or the
// controller manager fails.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	rc, err := daemon.RESTConfig(o.Kubeconfig, "controller-manager")
	if err != nil {
		return err
	}
	o.connect(rc)
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	log := daemon.NewLog(stderr, o.Verbosity)
	spans, err := daemon.OpenTracing(o.tracing, "controller-manager")
	if err != nil {
		return err
	}
	defer spans.End(ctx, log)
	warnUnused(o.flags, log)
	if o.contention {
		runtime.SetBlockProfileRate(1)
	}
	registry := daemon.NewMetrics()
	gates := &o.controller.Features
	if err := errors.Join(features.Register(registry, gates), features.RegisterVersions(registry, gates)); err != nil {
		return err
	}
	guard, err := daemon.NewGuard(client, o.serving.ClientCAFile)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { guard.Run(ctx); return nil })
	g.Go(func() error {
		pages := zpages.Handler("kube-controller-manager", zpages.Flags(o.flags), gates.Emulated, daemon.ConfigzPath,
			"/healthz", "/livez", "/metrics", "/readyz")
		return daemon.Serve(ctx, daemon.Endpoints{
			Flags: o.serving, Guard: guard, Metrics: registry, Log: log, Others: map[string]http.Handler{
				daemon.ConfigzPath: daemon.Configz(configName, o.configuration(rc)), zpages.Statusz: pages, zpages.Flagz: pages,
			},
		})
	})
	g.Go(func() error {
		return daemon.Lead(ctx, o.election, client, clock.Real(), log,
			func(ctx context.Context) error { return run(ctx, o, rc, client, registry, spans, log) })
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// run creates the controllers, waits until their caches are filled, and runs them.
func run(ctx context.Context, o *options, rc *rest.Config, client kubernetes.Interface,
	registry prometheus.Registerer, spans *daemon.Tracing, log *slog.Logger) error {
	shared := sharedDeps(o, client, registry, log)
	shared.Traces = spans.Pods()
	events, err := broadcaster(ctx, rc)
	if err != nil {
		return err
	}
	var made []controller.Controller
	for _, e := range controllers.Table() {
		if !o.runs(e.Name) || e.Enabled != nil && !e.Enabled(o.controller) {
			continue
		}
		d, err := depsOf(ctx, o, rc, client, shared, e)
		d.Events = events.NewRecorder(scheme.Scheme, v1.EventSource{Component: sourceOf(e.Name)})
		if err != nil {
			return fmt.Errorf("controller %s: %w", e.Name, err)
		}
		c, err := e.New(d)
		if err != nil {
			return fmt.Errorf("controller %s: %w", e.Name, err)
		}
		made = append(made, c)
	}
	shared.Informers.Start(ctx.Done())
	if err := shared.Informers.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return fmt.Errorf("caches not filled: %w", err)
	}
	log.Info("Controllers started", "count", len(made))
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range made {
		if i > 0 && o.pause > 0 {
			select {
			case <-ctx.Done():
			case <-shared.Clock.After(o.pause):
			}
		}
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

// eventsPerSecond and eventsAtOnce limit the requests that write events, as in Kubernetes'
// controllers, if the client configuration has no limits. Events above the limits wait, so that
// they do not delay other requests.
const eventsPerSecond, eventsAtOnce = 20, 100

// broadcaster returns the event broadcaster of all controllers. It has its own client.
func broadcaster(ctx context.Context, rc *rest.Config) (record.EventBroadcaster, error) {
	paced := rest.CopyConfig(rc)
	if paced.QPS <= 0 {
		paced.QPS, paced.Burst = eventsPerSecond, eventsAtOnce
	}
	client, err := typedcorev1.NewForConfig(paced)
	if err != nil {
		return nil, fmt.Errorf("client of events: %w", err)
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)})
	return events, nil
}

// sharedDeps returns the dependencies that are the same for all controllers.
func sharedDeps(o *options, client kubernetes.Interface, registry prometheus.Registerer,
	log *slog.Logger) controller.Deps {
	cached := memory.NewMemCacheClient(client.Discovery())
	return controller.Deps{
		Informers: controller.NewInformers(client, o.resyncPeriod()),
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(cached),
		Clock:     clock.Real(), Log: log, Metrics: registry, Options: o.controller,
	}
}

// depsOf returns the dependencies of the controller e: the shared ones in d, clients that
// authenticate as the controller's service account if that is enabled, and its number of workers.
func depsOf(ctx context.Context, o *options, rc *rest.Config, client kubernetes.Interface, d controller.Deps,
	e controllers.Entry) (controller.Deps, error) {
	own := rest.CopyConfig(rc)
	if o.ownAccounts && e.Account != "" {
		own = configFor(ctx, rc, client, e.Account)
	}
	var err error
	if d.Client, err = kubernetes.NewForConfig(own); err != nil {
		return d, fmt.Errorf("client: %w", err)
	}
	if d.Metadata, err = metadata.NewForConfig(own); err != nil {
		return d, fmt.Errorf("metadata client: %w", err)
	}
	d.Discovery = d.Client.Discovery()
	d.Options.Workers = workers
	if n := o.syncs[e.Name]; n != nil {
		d.Options.Workers = *n
	}
	return d, nil
}
