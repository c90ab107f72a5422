// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testing replaces Kubernetes' package of the same name (cmd/kube-apiserver/app/testing) when
// Kubernetes' integration tests run against Keelson. It has the identifiers that the tests use, but
// its servers are processes of Keelson's API server.
package testing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storageversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/tracing"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/e2e/invariants/metrics"
	testutil "k8s.io/kubernetes/test/utils"
	"k8s.io/kubernetes/test/utils/ktesting"

	"keelson.dev/keelson/test/conformance/integration/server"
)

// TearDownFunc stops a server.
type TearDownFunc func()

// TestServerInstanceOptions are the options of a server that have no flag.
type TestServerInstanceOptions struct {
	SkipHealthzCheck       bool
	DisableInvariantChecks bool
	EnableCertAuth         bool
	StorageVersionWrapFunc func(storageversion.Manager) storageversion.Manager
	ProxyCA                *ProxyCA
	BinaryVersion          string
	RequestTimeout         time.Duration
}

// TestServer is a running server.
type TestServer struct {
	ClientConfig      *rest.Config
	ServerOpts        *options.ServerRunOptions
	TearDownFn        TearDownFunc
	TmpDir            string
	EtcdClient        *clientv3.Client
	EtcdStoragePrefix string
}

// Logger is the part of testing.TB that the tests' own helpers need.
type Logger interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
}

// ProxyCA is the authority that signs the certificates of front proxies.
type ProxyCA struct {
	ProxySigningCert *x509.Certificate
	ProxySigningKey  *rsa.PrivateKey
}

// NewDefaultTestServerOptions returns the options for tests that need no others.
func NewDefaultTestServerOptions() *TestServerInstanceOptions {
	return &TestServerInstanceOptions{EnableCertAuth: true}
}

// StartTestServerOrDie is like StartTestServer, but ends the test if the server does not start.
func StartTestServerOrDie(t testing.TB, o *TestServerInstanceOptions, flags []string,
	storage *storagebackend.Config) *TestServer {
	t.Helper()
	result, err := StartTestServer(t, o, flags, storage)
	if err != nil {
		t.Fatalf("failed to launch server: %v", err)
	}
	return &result
}

// StartTestServer starts a server with the flags of a test, and waits until it is healthy.
func StartTestServer(t ktesting.TB, o *TestServerInstanceOptions, flags []string,
	storage *storagebackend.Config) (result TestServer, err error) {
	if o == nil {
		o = NewDefaultTestServerOptions()
	}
	if o.StorageVersionWrapFunc != nil {
		return result, errors.New(server.NotApplicable + "the test wraps the manager of storage versions")
	}
	if o.BinaryVersion != "" {
		return result, errors.New(server.NotApplicable + "the test starts a server of another version: " + o.BinaryVersion)
	}
	dir, err := os.MkdirTemp("", "keelson-apiserver")
	if err != nil {
		return result, fmt.Errorf("create temp dir: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	config, err := configure(o, dir, flags, storage)
	if err != nil {
		return result, err
	}
	tCtx, ok := t.(ktesting.TContext)
	if !ok {
		tCtx = ktesting.Init(t)
	}
	s, err := server.Start(tCtx, t, config)
	if err != nil {
		return result, err
	}
	etcd, _, err := GetEtcdClients(storage.Transport)
	if err != nil {
		return result, fmt.Errorf("create etcd client: %w", err)
	}
	t.Cleanup(func() { // if the test does not call tearDown
		_ = etcd.Close()
		os.RemoveAll(dir)
	})
	client := rest.CopyConfig(s.Client)
	// As in Kubernetes, the configuration has the certificate itself, because some tests copy it.
	if client.CAData, err = os.ReadFile(client.CAFile); err != nil {
		return result, fmt.Errorf("server's certificate: %w", err)
	}
	client.CAFile = ""
	config.Options.SecureServing.BindPort = s.Port
	tearDown := func() {
		if !o.DisableInvariantChecks && tCtx.Err() == nil {
			checkMetrics(tCtx, s.Client)
		}
		if err := s.Stop(); err != nil {
			tCtx.Logf("Server did not end with success: %v", err)
		}
		_ = etcd.Close()
		os.RemoveAll(dir)
	}
	if config.Options.Traces.ConfigFile != "" {
		// Make the client like the one that Kubernetes' server has if it is traced. That client continues
		// the traces of its callers. It accepts protobuf and any other type; tests expect this, because
		// the header Accept is an attribute of spans.
		client.ContentType = runtime.ContentTypeProtobuf
		client.Wrap(tracing.WrapperFor(tracing.NewNoopTracerProvider()))
	}
	return TestServer{
		ClientConfig: client, ServerOpts: config.Options, TearDownFn: tearDown, TmpDir: dir,
		EtcdClient: etcd, EtcdStoragePrefix: storage.Prefix,
	}, nil
}

// checkMetrics checks the relations between metrics that hold for every server of Kubernetes.
func checkMetrics(tCtx ktesting.TContext, c *rest.Config) {
	client, err := kubernetes.NewForConfig(c)
	if err == nil {
		err = metrics.CheckMetricInvariants(tCtx, client, false)
	}
	if err != nil {
		tCtx.Errorf("Invariant check failed: %v", err)
	}
}

// configure returns the configuration of a server: Kubernetes' defaults for its integration tests,
// then the flags of the test.
func configure(o *TestServerInstanceOptions, dir string, flags []string,
	storage *storagebackend.Config) (server.Config, error) {
	s := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	sets := s.Flags()
	for _, f := range sets.FlagSets {
		fs.AddFlagSet(f)
	}
	s.SecureServing.ServerCert.CertDirectory = dir
	s.ServiceClusterIPRanges = "10.0.0.0/16"
	s.Etcd.StorageConfig = *storage
	if o.RequestTimeout > 0 {
		s.GenericServerRunOptions.RequestTimeout = o.RequestTimeout
	}
	if o.EnableCertAuth {
		if err := certificates(s, o.ProxyCA, dir); err != nil {
			return server.Config{}, err
		}
	}
	key := filepath.Join(dir, "service-account.key")
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return server.Config{}, err
	}
	if err := writeKey(key, signer); err != nil {
		return server.Config{}, err
	}
	if err := fs.Parse(flags); err != nil {
		return server.Config{}, fmt.Errorf("flags of the test: %w", err)
	}
	if !fs.Changed("advertise-address") && !fs.Changed("endpoint-reconciler-type") {
		s.EndpointReconcilerType = "none"
	}
	s.ServiceAccountSigningKeyFile = key
	s.Authentication.ServiceAccounts.Issuers = []string{"https://foo.bar.example.com"}
	s.Authentication.ServiceAccounts.KeyFiles = []string{key}
	return server.Config{Options: s, Flags: []*pflag.FlagSet{fs}, Dir: dir, SkipHealthz: o.SkipHealthzCheck}, nil
}

// certificates creates the authorities of clients and of front proxies, and the server's own client
// certificate for aggregated API servers.
func certificates(s *options.ServerRunOptions, ca *ProxyCA, dir string) error {
	if ca == nil {
		key, c, err := authority("front-proxy-ca")
		if err != nil {
			return err
		}
		ca = &ProxyCA{ProxySigningCert: c, ProxySigningKey: key}
	}
	proxyCA := filepath.Join(dir, "proxy-ca.crt")
	if err := os.WriteFile(proxyCA, testutil.EncodeCertPEM(ca.ProxySigningCert), 0o600); err != nil {
		return err
	}
	s.Authentication.RequestHeader.ClientCAFile = proxyCA
	s.Authentication.RequestHeader.UsernameHeaders = []string{"x-remote-user"}
	s.Authentication.RequestHeader.GroupHeaders = []string{"x-remote-group"}
	s.Authentication.RequestHeader.ExtraHeaderPrefixes = []string{"x-remote-extra-"}
	s.Authentication.RequestHeader.AllowedNames = []string{"ash", "misty", "brock"}
	if err := identity(s, ca, dir); err != nil {
		return err
	}
	_, c, err := authority("client-ca")
	if err != nil {
		return err
	}
	s.Authentication.ClientCert.ClientCA = filepath.Join(dir, "client-ca.crt")
	return os.WriteFile(s.Authentication.ClientCert.ClientCA, testutil.EncodeCertPEM(c), 0o600)
}

// identity creates the client certificate that the server presents to aggregated API servers. Its
// name is one of the allowed names of front proxies.
func identity(s *options.ServerRunOptions, ca *ProxyCA, dir string) error {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "misty"}, NotBefore: ca.ProxySigningCert.NotBefore,
		NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.ProxySigningCert, signer.Public(), ca.ProxySigningKey)
	if err != nil {
		return err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	s.ProxyClientCertFile, s.ProxyClientKeyFile = filepath.Join(dir, "misty.crt"), filepath.Join(dir, "misty.key")
	if err := cert.WriteCert(s.ProxyClientCertFile, testutil.EncodeCertPEM(c)); err != nil {
		return err
	}
	return writeKey(s.ProxyClientKeyFile, signer)
}

// authority returns a new authority.
func authority(name string) (*rsa.PrivateKey, *x509.Certificate, error) {
	key, err := testutil.NewPrivateKey()
	if err != nil {
		return nil, nil, err
	}
	c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	return key, c, err
}

// writeKey writes a private key as PEM.
func writeKey(file string, key *ecdsa.PrivateKey) error {
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return keyutil.WriteKey(file, data)
}

// GetEtcdClients returns clients of the etcd at which a server stores its objects.
func GetEtcdClients(c storagebackend.TransportConfig) (*clientv3.Client, clientv3.KV, error) {
	var secure *tls.Config
	if c.CertFile != "" || c.KeyFile != "" || c.TrustedCAFile != "" { // with TLS, URLs like unix:// fail
		info := transport.TLSInfo{CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.TrustedCAFile}
		var err error
		if secure, err = info.ClientConfig(); err != nil {
			return nil, nil, err
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.ServerList, DialTimeout: 20 * time.Second, TLS: secure})
	if err != nil {
		return nil, nil, err
	}
	return client, clientv3.NewKV(client), nil
}
