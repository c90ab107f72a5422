// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testserver runs a complete API server in a test, with RBAC, on a loopback port. The store
// is in memory or an embedded etcd. The test gets a client that has all rights.
package testserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// Server is a running API server.
type Server struct {
	// Config is the configuration of a client with the rights of system:masters.
	Config *rest.Config
	// Client is a client that uses Config.
	Client kubernetes.Interface
	// URL is the URL of the server.
	URL string
	// Dir is the directory of the server's certificates and keys: ca.crt, ca.key, sa.key.
	Dir string
	// KV is the server's key-value store. A second server can use the same store.
	KV kv.Store

	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	stop  context.CancelFunc
	done  chan error
}

// Options configure the server. The zero value uses a store in memory.
type Options struct {
	// Etcd starts an embedded etcd, which the server then uses. It is embedded.Start, or nil if the
	// store is in memory. Test programs that do not set it contain no etcd, and are linked faster.
	Etcd func(context.Context, etcd.Embedded) (*etcd.Store, error)
	// KV is a store that another server also uses. If nil, the server creates a new one.
	KV kv.Store
	// Dir is the directory with the PKI of another server. If empty, the server creates a new PKI.
	Dir string
	// Configure changes the configuration before the start.
	Configure func(*config.Config)
	// Clock replaces the machine's clock.
	Clock clock.Clock
	// Listener replaces the listener on a loopback port.
	Listener net.Listener
	// Log receives the server's log. If nil, the log is discarded.
	Log io.Writer
}

// Start runs an API server until the test ends. It returns once the server is ready.
func Start(tb testing.TB, opts Options) *Server {
	tb.Helper()
	quiet()
	s := &Server{Dir: opts.Dir, done: make(chan error, 1), KV: opts.KV}
	clk := opts.Clock
	if clk == nil {
		clk = clock.Real()
	}
	if s.Dir == "" {
		s.Dir = tb.TempDir()
		s.makePKI(tb, clk.Now())
	} else {
		s.loadPKI(tb)
	}
	cfg := s.config(tb)
	if opts.Configure != nil {
		opts.Configure(&cfg)
	}
	if s.KV == nil && opts.Etcd == nil {
		s.KV = memory.New(clk)
	}
	log := slog.New(slog.DiscardHandler)
	if opts.Log != nil {
		log = slog.New(slog.NewJSONHandler(opts.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	api, err := apiserver.New(cfg, apiserver.Deps{Clock: clk, Log: log, KV: s.KV, StartEtcd: opts.Etcd,
		Listener: opts.Listener})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- api.Run(ctx) }()
	tb.Cleanup(func() { s.Stop(tb) })
	select {
	case <-api.Ready():
	case err := <-s.done:
		s.done <- err
		tb.Fatal("server ended before it was ready: ", err)
	case <-clk.After(startTimeout):
		tb.Fatal("server not ready")
	}
	s.URL = "https://" + api.Addr().String()
	s.Config = s.UserConfig(tb, "admin", "system:masters")
	if s.Client, err = kubernetes.NewForConfig(s.Config); err != nil {
		tb.Fatal(err)
	}
	return s
}

// quiet discards the log messages that libraries write with klog.
func quiet() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

// startTimeout limits how long a test waits for a server that does not become ready.
const startTimeout = 3 * time.Minute

// Stop stops the server and waits until it has stopped. Tests need not call it, because the server
// stops at the end of the test anyway.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.stop()
	if err, ok := <-s.done; ok {
		if err != nil {
			tb.Error("server: ", err)
		}
		close(s.done)
	}
}

// Do sends a request, and returns the answer with its whole body.
func Do(tb testing.TB, client *http.Client, req *http.Request) (resp *http.Response, body string) {
	tb.Helper()
	resp, err := client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close() // Close cannot fail, because the body has been read to its end
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp, string(b)
}

// UserConfig returns the configuration of a client with a certificate for user and groups.
func (s *Server) UserConfig(tb testing.TB, user string, groups ...string) *rest.Config {
	tb.Helper()
	cert, key := s.issue(tb, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return &rest.Config{
		Host: s.URL, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key, CAData: encode("CERTIFICATE", s.ca.Raw)},
	}
}

// ClientCertificate returns a client certificate for name and its key, issued with the PKI in dir.
func ClientCertificate(tb testing.TB, dir, name string) (cert, key []byte) {
	tb.Helper()
	s := &Server{Dir: dir}
	s.loadPKI(tb)
	return s.issue(tb, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// TokenConfig returns the configuration of a client with a bearer token.
func (s *Server) TokenConfig(token string) *rest.Config {
	return &rest.Config{
		Host: s.URL, QPS: -1, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: encode("CERTIFICATE", s.ca.Raw)},
	}
}

func (s *Server) config(tb testing.TB) config.Config {
	cfg := config.Default()
	cfg.BindAddress, cfg.SecurePort = "127.0.0.1", 0
	cfg.AdvertiseAddress = "192.0.2.1" // endpoints cannot contain a loopback address
	cfg.DataDir = filepath.Join(tb.TempDir(), "etcd")
	cfg.ClientCAFile = filepath.Join(s.Dir, "ca.crt")
	cfg.TLSCertFile, cfg.TLSKeyFile = filepath.Join(s.Dir, "server.crt"), filepath.Join(s.Dir, "server.key")
	cfg.ServiceAccountSignKey = filepath.Join(s.Dir, "sa.key")
	cfg.ServiceAccountKeyFiles = []string{cfg.ServiceAccountSignKey}
	cfg.ServiceAccountIssuers = []string{"https://kubernetes.default.svc.cluster.local"}
	cfg.AuthorizationModes = []string{config.ModeNode, config.ModeRBAC}
	cfg.EnableAdmission = []string{"NodeRestriction"}
	cfg.AllowPrivileged = true
	cfg.BootstrapTokenAuth = true
	cfg.ServiceClusterIPRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	return cfg
}

func (s *Server) makePKI(tb testing.TB, now time.Time) {
	tb.Helper()
	s.caKey = newKey(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test-ca"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, s.caKey.Public(), s.caKey)
	if err != nil {
		tb.Fatal(err)
	}
	if s.ca, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	s.write(tb, "ca.crt", encode("CERTIFICATE", der))
	s.write(tb, "ca.key", encodeKey(tb, s.caKey))
	cert, key := s.issue(tb, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
	})
	s.write(tb, "server.crt", cert)
	s.write(tb, "server.key", key)
	s.write(tb, "sa.key", encodeKey(tb, newKey(tb)))
}

func (s *Server) loadPKI(tb testing.TB) {
	tb.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.Dir, "ca.crt"), filepath.Join(s.Dir, "ca.key"))
	if err != nil {
		tb.Fatal(err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		tb.Fatalf("unexpected key %T", pair.PrivateKey)
	}
	s.ca, s.caKey = pair.Leaf, key
}

// issue signs a certificate and returns it with its key, in PEM.
func (s *Server) issue(tb testing.TB, template *x509.Certificate) (cert, key []byte) {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = s.ca.NotBefore, s.ca.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	private := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, private.Public(), s.caKey)
	if err != nil {
		tb.Fatal(err)
	}
	return encode("CERTIFICATE", der), encodeKey(tb, private)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func encodeKey(tb testing.TB, key *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return encode("EC PRIVATE KEY", der)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (s *Server) write(tb testing.TB, name string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, name), data, 0o600); err != nil {
		tb.Fatal(err)
	}
}
