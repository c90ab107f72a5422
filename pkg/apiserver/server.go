// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/http2server"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/apiserver/audit"
	"keelson.dev/keelson/pkg/apiserver/authn"
	"keelson.dev/keelson/pkg/apiserver/authz"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/filters"
	"keelson.dev/keelson/pkg/apiserver/satoken"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/health"
)

// Deps are the dependencies of a server. Each is optional.
type Deps struct {
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *daemon.Metrics
	// KV is the key-value store. If nil, the server uses the etcd of the configuration. The server
	// does not close a given store.
	KV kv.Store
	// StartEtcd starts an etcd in this process. The server calls it if KV is nil and the configuration
	// names no etcd servers. Only programs that set it, to embedded.Start, contain etcd's server.
	StartEtcd func(context.Context, etcd.Embedded) (*etcd.Store, error)
	// Listener is the listener to serve on. If nil, the server listens on the configured address.
	Listener net.Listener
	// Getenv reads the environment, in which a parent process names inherited listening sockets
	// (LISTEN_FDS) to serve on as well. If nil, no sockets are inherited.
	Getenv func(string) string
}

// Server is an API server. New creates a Server, and Run runs it.
type Server struct {
	cfg  config.Config
	deps Deps
	log  *slog.Logger

	scheme      *runtime.Scheme
	groups      []string // API groups in the order of discovery
	serving     *serving
	clientCA    *authn.CAFile
	proxyCA     *authn.CAFile
	issuers     *authn.Issuers
	authorizers *authz.Chain
	issuer      *satoken.Issuer
	keys        satoken.KeySource
	signer      *satoken.External // nil if this process signs tokens
	keyServers  []health.Check    // health checks of the servers of encryption keys
	audit       *audit.Log        // nil if auditing is off
	tracing     *daemon.Tracing   // nil if tracing is off
	metrics     *metricFilter

	inFlight  *filters.InFlight
	inherited []net.Listener
	shutdown  *health.Gate
	ready     chan struct{} // closed once readyz passes
	address   atomic.Pointer[net.TCPAddr]
}

// New validates cfg and reads the files that it names. It starts nothing.
func New(cfg config.Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Clock == nil {
		deps.Clock = clock.Real()
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Metrics == nil {
		deps.Metrics = daemon.NewMetrics()
	}
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Log,
		inFlight: filters.NewInFlight(), shutdown: health.NewGate("shutdown", "process is shutting down"),
		ready: make(chan struct{}),
	}
	s.shutdown.Open()
	return s, s.load()
}

// load determines the served APIs and reads certificates and keys. The order of the steps decides
// which of several errors is returned; it is the order of Kubernetes' server.
func (s *Server) load() error {
	for _, step := range []func() error{s.loadServed, s.loadSigningKey, s.loadServing, s.loadAuthentication,
		s.loadVerifyingKeys, s.loadPolicies} {
		if err := step(); err != nil {
			return err
		}
	}
	if s.deps.Getenv == nil {
		return nil
	}
	var err error
	s.inherited, err = inheritedSockets(s.deps.Getenv)
	return err
}

func (s *Server) loadServed() (err error) {
	if s.metrics, err = newMetricFilter(&s.cfg.Metrics); err != nil {
		return err
	}
	if s.scheme, err = NewScheme(); err != nil {
		return err
	}
	rows, err := api.Served(s.cfg.RuntimeConfig, s.scheme,
		api.Deps{Emulated: s.cfg.Features.Emulated, Enabled: s.cfg.Features.Enabled})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !slices.Contains(s.groups, r.Group) {
			s.groups = append(s.groups, r.Group)
		}
	}
	return nil
}

func (s *Server) loadServing() (err error) {
	if s.serving, err = newServing(&s.cfg, s.log); err != nil {
		return err
	}
	if err = checkEgress(s.cfg.EgressSelector); err != nil {
		return err
	}
	s.tracing, err = daemon.OpenTracing(s.cfg.TracingConfig, "apiserver")
	return err
}

func (s *Server) loadAuthentication() (err error) {
	if s.cfg.ClientCAFile != "" {
		if s.clientCA, err = authn.LoadCAFile("client-ca-bundle", s.cfg.ClientCAFile); err != nil {
			return err
		}
		s.serving.cas = append(s.serving.cas, s.clientCA)
	}
	if s.cfg.AnonymousAuth && !s.cfg.Anonymous() {
		s.log.Info("Anonymous requests are rejected, because the authorization mode AlwaysAllow would "+
			"allow all of them", "authorizationMode", config.ModeAlwaysAllow)
	}
	s.issuers, err = authn.LoadIssuers(authn.IssuersConfig{
		Authentication: s.cfg.Authentication, Own: s.cfg.ServiceAccountIssuers, Audiences: s.audiences(),
		AnonymousSet: s.cfg.AnonymousAuthSet, Anonymous: s.cfg.Anonymous(),
		ServerID: daemon.ServerID(), Clock: s.deps.Clock, Log: s.log,
	})
	if err != nil || s.cfg.RequestHeader.ClientCAFile == "" {
		return err
	}
	if s.proxyCA, err = authn.LoadCAFile("request-header", s.cfg.RequestHeader.ClientCAFile); err != nil {
		return err
	}
	s.serving.cas = append(s.serving.cas, s.proxyCA)
	if s.clientCA != nil && len(s.cfg.RequestHeader.AllowedNames) == 0 && s.clientCA.Shares(s.proxyCA) {
		return errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; " +
			"--requestheader-allowed-names must be specified to ensure regular client certificates cannot " +
			"set authenticating proxy headers for arbitrary users")
	}
	return nil
}

func (s *Server) loadPolicies() (err error) {
	s.authorizers, err = authz.Load(authz.Config{
		Authorization: s.cfg.Authorization, Modes: s.cfg.AuthorizationModes, ServerID: daemon.ServerID(),
		Clock: s.deps.Clock, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.audit, err = audit.New(s.cfg.Audit, s.cfg.DataDir,
		audit.Deps{Clock: s.deps.Clock, Log: s.log, Metrics: s.deps.Metrics})
	if err != nil {
		return err
	}
	if cert, key := s.cfg.ProxyClientCert, s.cfg.ProxyClientKey; cert != "" && key != "" {
		_, err = tls.LoadX509KeyPair(cert, key)
	}
	return err
}

// audiences returns the token audiences of this API.
func (s *Server) audiences() authenticator.Audiences {
	if len(s.cfg.APIAudiences) > 0 {
		return s.cfg.APIAudiences
	}
	return slices.Clone(s.cfg.ServiceAccountIssuers)
}

// Ready is closed once everything has started and readyz answers ok.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr returns the address that the server listens on, or nil before it listens.
func (s *Server) Addr() net.Addr {
	if a := s.address.Load(); a != nil {
		return a
	}
	return nil
}

// Run serves until ctx is done, then drains requests and stops. It returns an error if the server
// cannot start, or if it can no longer accept connections.
func (s *Server) Run(ctx context.Context) error {
	// Background work continues after ctx is done, until all requests have drained.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer s.tracing.End(ctx, s.log)
	defer background.Wait()
	defer stop()

	d, err := s.openDatabases(ctx)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // etcd recovers from its write-ahead log at the next start
	defer background.Wait()
	defer stop()
	if err := d.follow(inner, s); err != nil {
		return err
	}
	if err := d.markStores(ctx, s); err != nil {
		return err
	}
	if d.epoch, err = d.readEpoch(ctx, s.cfg.EtcdPrefix); err != nil {
		return err
	}
	background.Go(func() { d.run(inner, s) })
	background.Go(func() { s.serving.run(inner, s.deps.Clock) })
	background.Go(func() { s.runAudit(inner) })
	if err := s.startTokens(inner, &background); err != nil {
		return err
	}
	if err := s.issuers.Start(inner); err != nil {
		return err
	}
	background.Go(func() { s.issuers.Run(inner) })

	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close() // the HTTP server has usually closed it already
	a, err := s.assemble(inner, d)
	if err != nil {
		return err
	}
	if d.sealed != nil {
		background.Go(func() { d.sealed.Run(inner) })
	}
	background.Go(func() { s.authorizers.Run(inner) })
	background.Go(func() { a.run(inner) })
	if err := s.serveDebugSocket(inner, &background); err != nil {
		// Not fatal, because the socket only serves debugging.
		s.log.Error("Failed to serve debug socket", "err", err)
	}
	return s.serve(ctx, listener, a)
}

func (s *Server) runAudit(ctx context.Context) {
	if s.audit == nil {
		return
	}
	if err := s.audit.Run(ctx); err != nil {
		s.log.Error("Audit backend stopped", "err", err)
	}
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	l := s.deps.Listener
	if l == nil {
		lc := net.ListenConfig{Control: shareSocket(&s.cfg.Serving)}
		var err error
		address := net.JoinHostPort(s.cfg.BindAddress, fmt.Sprint(s.cfg.SecurePort))
		if l, err = lc.Listen(ctx, "tcp", address); err != nil {
			return nil, fmt.Errorf("failed to create listener: failed to listen on %s: %w", address, err)
		}
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("listen: %T is not a TCP address", l.Addr())
	}
	s.address.Store(addr)
	return l, nil
}

// serve serves HTTPS until ctx is done and then drains, in this order: readyz fails, so that load
// balancers stop sending requests. The listeners close, or new requests are answered with
// Retry-After if that is configured. Ordinary requests end. At last, watches and other streams are
// ended.
func (s *Server) serve(ctx context.Context, l net.Listener, a *assembly) error {
	streams, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server, err := s.httpServer(a.handler, streams)
	if err != nil {
		return err
	}
	listeners := append([]net.Listener{l}, s.inherited...)
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(tls.NewListener(l, server.TLSConfig)) }()
	}
	s.log.Info("Serving", "address", l.Addr().String())
	select {
	case err := <-failed:
		return errors.Join(fmt.Errorf("serve: %w", err), server.Close())
	case <-ctx.Done():
	}
	s.log.Info("Shutting down")
	s.shutdown.Close()
	if s.cfg.ShutdownDelay > 0 {
		<-s.deps.Clock.After(s.cfg.ShutdownDelay)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
	defer cancel()
	if !s.cfg.HTTP.RetryAfterShutdown {
		closeListeners(drain, server)
	}
	err = s.inFlight.Drain(drain)
	a.leave(drain)
	cut()
	// No requests are left: send GOAWAY on idle connections and close them.
	farewell, cancelFarewell := context.WithTimeout(drain, goawayTimeout)
	defer cancelFarewell()
	if server.Shutdown(farewell) != nil {
		err = errors.Join(err, server.Close())
	}
	for range listeners {
		<-failed
	}
	return wrap("drain", err)
}

// closeListeners closes the listeners of server and sends GOAWAY to HTTP/2 clients, so that they
// open other connections. Requests in flight continue.
func closeListeners(ctx context.Context, server *http.Server) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	// The context is already canceled. Shutdown closes the listeners and then returns the error of
	// the context, instead of waiting for requests.
	_ = server.Shutdown(now)
}

// httpServer returns a server with limits on headers and streams, and on the time to read requests
// and to write answers.
func (s *Server) httpServer(h http.Handler, base context.Context) (*http.Server, error) {
	tlsConfig, err := s.serving.config()
	if err != nil {
		return nil, err
	}
	read, write := filters.ConnectionTimeouts(s.cfg.RequestTimeout)
	server := &http.Server{
		Handler:           h,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       read,
		WriteTimeout:      write,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       func(ctx context.Context, _ net.Conn) context.Context { return authn.WithConnection(ctx) },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          cmp.Or(s.cfg.MaxHTTP2Streams, maxStreams),
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 256 << 10 * 64,
			SendPingTimeout:               idleTimeout / 2,
			PingTimeout:                   readHeaderTimeout,
		},
	}
	if s.cfg.Serving.DisableHTTP2 {
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		return server, nil
	}
	if err := http2server.Configure(server, s.deps.Clock); err != nil {
		return nil, err
	}
	return server, nil
}
