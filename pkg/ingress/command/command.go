// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command runs the ingress proxy as a process. It parses the flags, creates the client, and
// runs the proxy's controller and servers.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/health"
	"keelson.dev/keelson/pkg/ingress"
)

const (
	defaultPort = 10254
	// lameDuck is how long the process still accepts new requests after it was asked to end, because
	// load balancers need that time to stop sending requests to it. drain is how long it then waits
	// for requests in progress.
	lameDuck = 5 * time.Second
	drain    = 20 * time.Second
)

type options struct {
	daemon.Flags
	serving     daemon.ServingFlags
	http, https string
	publish     string
	limits      ingress.Limits
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{serving: daemon.ServingFlags{BindAddress: net.IPv4zero, SecurePort: defaultPort, NoProfiling: true}}
	fs := pflag.NewFlagSet("ingress", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.Flags.Add(fs)
	o.serving.Add(fs)
	fs.StringVar(&o.http, "http-address", ":8080", "address and port on which the proxy serves HTTP")
	fs.StringVar(&o.https, "https-address", ":8443", "address and port on which the proxy serves HTTPS")
	fs.StringVar(&o.publish, "publish-service", "",
		"NAMESPACE/NAME of the Service that leads to this proxy; its addresses are written to the status of the "+
			"Ingresses that the proxy serves; if empty, no addresses are written")
	// Calling SetMemoryLimit with a negative number only returns the current limit, which
	// GOMEMLIMIT sets.
	o.limits = ingress.DefaultLimits(debug.SetMemoryLimit(-1))
	limits := map[string]*int{}
	add := func(name string, value *int, what string) {
		fs.IntVar(value, name, *value, what)
		limits[name] = value
	}
	add("max-connections", &o.limits.Connections,
		"maximum number of open connections from clients; the default is lower if GOMEMLIMIT is below 2 GiB")
	add("max-connections-per-client", &o.limits.ClientConnections,
		"maximum number of open connections from one client, which is an IPv4 address or an IPv6 /64 network; the "+
			"default is an eighth of the default of --max-connections")
	add("max-requests", &o.limits.Requests,
		"maximum number of requests at the same time; the default is lower if GOMEMLIMIT is below 4 GiB")
	add("max-requests-per-client", &o.limits.ClientRequests,
		"maximum number of requests at the same time from one client; the default is an eighth of the default of "+
			"--max-requests")
	add("max-requests-per-namespace", &o.limits.NamespaceRequests,
		"maximum number of requests at the same time to the Services of one namespace; the default is half of the "+
			"default of --max-requests")
	if err := daemon.Parse(fs, args); err != nil {
		return nil, err
	}
	for name, value := range limits {
		if *value < 1 {
			return nil, fmt.Errorf("--%s must be at least 1", name)
		}
	}
	if _, _, ok := strings.Cut(o.publish, "/"); !ok && o.publish != "" {
		return nil, fmt.Errorf("--publish-service %q is not namespace/name", o.publish)
	}
	return o, nil
}

// Run runs the process until ctx ends or an error occurs.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	rc, err := restConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return run(ctx, o, client, daemon.NewLog(stderr, o.Verbosity))
}

// restConfig returns the client configuration from the kubeconfig file. Without a file, it returns
// the configuration for the pod in which the process runs.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return daemon.RESTConfig(kubeconfig, "ingress")
	}
	c, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("no --kubeconfig, and not in a pod: %w", err)
	}
	c.UserAgent = "ingress/" + daemon.Version
	return c, nil
}

func run(ctx context.Context, o *options, client kubernetes.Interface, log *slog.Logger) error {
	registry := daemon.NewMetrics()
	proxy := ingress.NewProxy(ingress.Options{Limits: o.limits, Clock: clock.Real(), Log: log, Metrics: registry})
	namespace, name, _ := strings.Cut(o.publish, "/")
	control, err := ingress.NewController(client, proxy, types.NamespacedName{Namespace: namespace, Name: name},
		clock.Real(), log)
	if err != nil {
		return err
	}
	guard, err := daemon.NewGuard(client, o.serving.ClientCAFile)
	if err != nil {
		return err
	}
	table := health.NewGate("table", "no Ingress was read yet")
	g, ctx := errgroup.WithContext(ctx)
	ending := health.Check{Name: "shutdown", Run: func(context.Context) error { return ctx.Err() }}
	// Serve readiness until everything else has ended, so that load balancers see that the process
	// is not ready any more.
	served, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { guard.Run(ctx); return nil })
	g.Go(func() error { return control.Run(ctx, table.Open) })
	g.Go(func() error {
		return daemon.Serve(served, daemon.Endpoints{Flags: o.serving, Guard: guard, Metrics: registry,
			Ready: []health.Check{table.Check(), ending}, Log: log})
	})
	g.Go(func() error {
		defer stop()
		return serve(ctx, o, proxy, clock.Real(), log)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve serves HTTP and HTTPS. It ends lameDuck and at most drain after ctx has ended.
func serve(ctx context.Context, o *options, p *ingress.Proxy, clk clock.Clock, log *slog.Logger) error {
	plain, secure := p.Server(), p.Server()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.http)
	if err != nil {
		return fmt.Errorf("listen on --http-address: %w", err)
	}
	ls, err := lc.Listen(ctx, "tcp", o.https)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on --https-address: %w", err), l.Close())
	}
	var g errgroup.Group
	g.Go(func() error { return plain.Serve(p.Listener(l)) })
	g.Go(func() error { return secure.ServeTLS(p.Listener(ls), "", "") })
	g.Go(func() error {
		<-ctx.Done()
		<-clk.After(lameDuck)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		return errors.Join(plain.Shutdown(end), secure.Shutdown(end))
	})
	if err := g.Wait(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
