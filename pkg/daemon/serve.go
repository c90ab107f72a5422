// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/keelson/pkg/daemon/scrape"
	"keelson.dev/keelson/pkg/health"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 90 * time.Second
	shutdownTimeout   = 5 * time.Second
	maxHeaderBytes    = 64 << 10
)

// Endpoints has what Serve serves, and how.
type Endpoints struct {
	Flags   ServingFlags
	Guard   *Guard // if nil, Serve serves only the health checks
	Metrics prometheus.Gatherer
	Live    []health.Check
	Ready   []health.Check
	// Others has further handlers by path, such as /configz. They are protected by Guard.
	Others map[string]http.Handler
	Log    *slog.Logger
}

// Serve serves the endpoints until ctx ends. If the port is 0, it serves nothing and returns nil
// immediately.
func Serve(ctx context.Context, e Endpoints) error {
	if e.Flags.SecurePort == 0 {
		return nil
	}
	tlsConfig, err := e.Flags.TLS(e.Guard)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.Flags.Address())
	if err != nil {
		return fmt.Errorf("listen on --bind-address and --secure-port: %w", err)
	}
	s := &http.Server{
		Handler: e.handler(), TLSConfig: tlsConfig, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: e.Flags.MaxStreams},
	}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = s.Shutdown(ctx) // the end of the process closes connections that are still open
	})
	defer stop()
	if err := s.ServeTLS(l, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", e.Flags.Address(), err)
	}
	return nil
}

func (e *Endpoints) handler() http.Handler {
	mux := http.NewServeMux()
	live := append([]health.Check{health.Ping()}, e.Live...)
	ready := append(append([]health.Check{}, live...), e.Ready...)
	results := health.NewResults()
	for root, checks := range map[string][]health.Check{"/healthz": live, "/livez": live, "/readyz": ready} {
		h := health.Handler(root, e.Log, results.Watch(root[1:], checks)...)
		mux.Handle(root, h)
		mux.Handle(root+"/", h)
	}
	if e.Guard == nil {
		return mux
	}
	mux.Handle(health.ResultsPath, e.Guard.Wrap(results.Handler()))
	if e.Metrics != nil {
		mux.Handle("/metrics", e.Guard.Wrap(scrape.Handler(e.Metrics)))
	}
	if !e.Flags.NoProfiling {
		for path, h := range map[string]http.HandlerFunc{
			"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
			"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
		} {
			mux.Handle(path, e.Guard.Wrap(h))
		}
	}
	for path, h := range e.Others {
		mux.Handle(path, e.Guard.Wrap(h))
	}
	return mux
}

// TLS returns the TLS configuration of the server. It reads the certificate from files and reloads
// them after they are replaced. If no files are configured, it creates a self-signed certificate,
// which is sufficient for a process to which only its own machine connects. If guard verifies client
// certificates, the server asks for them. guard may be nil.
func (f *ServingFlags) TLS(guard *Guard) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	var err error
	if f.MinTLSVersion != "" {
		if c.MinVersion, err = cliflag.TLSVersion(f.MinTLSVersion); err != nil {
			return nil, fmt.Errorf("--tls-min-version: %w", err)
		}
	}
	if c.CipherSuites, err = cliflag.TLSCipherSuites(f.CipherSuites); err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	if c.GetCertificate, err = f.certificate(); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if guard != nil && guard.ca != nil {
		guard.request(c)
	}
	return c, nil
}

// certificate returns the function that returns the serving certificate for a handshake.
func (f *ServingFlags) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if f.CertFile != "" {
		k := &KeyPair{CertFile: f.CertFile, KeyFile: f.KeyFile}
		_, err := k.Get()
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return k.Get() }, err
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{f.BindAddress}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
