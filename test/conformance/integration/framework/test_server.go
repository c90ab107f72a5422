// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build keelson

// Package framework is a part of Kubernetes' package test/integration/framework. This file replaces
// the one of the same name when Kubernetes' integration tests run against Keelson; the build tag keeps
// it out of other builds, where it would lack the rest of its package.
package framework

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/test/e2e/invariants/metrics"
	"k8s.io/kubernetes/test/utils"

	"keelson.dev/keelson/test/conformance/integration/server"
)

// TestServerSetup changes the options of a server before it starts.
type TestServerSetup struct {
	ModifyServerRunOptions func(*options.ServerRunOptions)
	ModifyServerConfig     func(*controlplane.Config)
	DisableInvariantChecks bool
}

// TearDownFunc stops a server.
type TearDownFunc func()

// StartTestServer starts a server with the options of a test, and waits until it is healthy.
func StartTestServer(ctx context.Context, t testing.TB, setup TestServerSetup) (kubernetes.Interface, *rest.Config,
	TearDownFunc) {
	t.Helper()
	dir, err := os.MkdirTemp("", "keelson-apiserver")
	if err != nil {
		t.Fatalf("create temp dir: %v", err)
	}
	s, err := start(ctx, t, setup, dir)
	if err != nil {
		os.RemoveAll(dir)
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // if the test does not call the function that is returned
	client, err := kubernetes.NewForConfig(s.Client)
	if err != nil {
		t.Fatal(err)
	}
	return client, rest.CopyConfig(s.Client), func() {
		if !setup.DisableInvariantChecks && ctx.Err() == nil {
			if err := metrics.CheckMetricInvariants(ctx, client, false); err != nil {
				t.Errorf("Invariant check failed: %v", err)
			}
		}
		if err := s.Stop(); err != nil {
			t.Logf("Server did not end with success: %v", err)
		}
		os.RemoveAll(dir)
	}
}

// start starts a server with Kubernetes' options for its integration tests, then those of the test.
func start(ctx context.Context, t testing.TB, setup TestServerSetup, dir string) (*server.Server, error) {
	opts := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	sets := opts.Flags()
	for _, f := range sets.FlagSets {
		fs.AddFlagSet(f)
	}
	key := filepath.Join(dir, "service-account.key")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	opts.SecureServing.ServerCert.CertDirectory = dir
	opts.ServiceAccountSigningKeyFile = key
	opts.Etcd.StorageConfig.Prefix = path.Join("/", uuid.New().String(), "registry")
	opts.Etcd.StorageConfig.Transport.ServerList = []string{GetEtcdURL()}
	opts.ServiceClusterIPRanges = "10.0.0.0/24"
	headers := opts.Authentication.RequestHeader
	headers.UsernameHeaders = []string{"X-Remote-User"}
	headers.GroupHeaders = []string{"X-Remote-Group"}
	headers.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	headers.AllowedNames = []string{"kube-aggregator"}
	var err error
	if headers.ClientCAFile, err = writeAuthority(dir, "front-proxy-ca"); err != nil {
		return nil, err
	}
	if opts.Authentication.ClientCert.ClientCA, err = writeAuthority(dir, "client-ca"); err != nil {
		return nil, err
	}
	opts.Authentication.APIAudiences = []string{"https://foo.bar.example.com"}
	opts.Authentication.ServiceAccounts.Issuers = []string{"https://foo.bar.example.com"}
	opts.Authentication.ServiceAccounts.KeyFiles = []string{key}
	opts.Authorization.Modes = []string{"Node", "RBAC"}
	if setup.ModifyServerRunOptions != nil {
		setup.ModifyServerRunOptions(opts)
	}
	extra, err := modified(setup.ModifyServerConfig)
	if err != nil {
		return nil, err
	}
	return server.Start(ctx, t, server.Config{Options: opts, Flags: []*pflag.FlagSet{fs}, Dir: dir, Extra: extra})
}

// modified returns the flags that do what a test does to the server's configuration, or an error if
// no flag can do that.
func modified(modify func(*controlplane.Config)) (flags []string, err error) {
	if modify == nil {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%sthe test changes the configuration of the server's library: %v", server.NotApplicable, r)
		}
	}()
	c := &controlplane.Config{}
	c.ControlPlane.Generic = &genericapiserver.Config{LoopbackClientConfig: &rest.Config{}}
	modify(c)
	generic := c.ControlPlane.Generic
	if generic.Authentication.Authenticator != nil || generic.Authorization.Authorizer != nil ||
		generic.AdmissionControl != nil || generic.RequestTimeout != 0 || c.ControlPlane.Extra.EnableLogsSupport {
		return nil, fmt.Errorf("%sthe test replaces a part of the server's library", server.NotApplicable)
	}
	if t := c.Extra.EndpointReconcilerType; t != "" {
		flags = append(flags, "--endpoint-reconciler-type="+string(t))
	}
	return flags, nil
}

// writeKey writes a new private key for service account tokens.
func writeKey(file string) error {
	key, err := utils.NewPrivateKey()
	if err != nil {
		return err
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return keyutil.WriteKey(file, data)
}

// writeAuthority writes the certificate of a new authority and returns the file.
func writeAuthority(dir, name string) (string, error) {
	key, err := utils.NewPrivateKey()
	if err != nil {
		return "", err
	}
	c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name+".crt")
	return file, os.WriteFile(file, utils.EncodeCertPEM(c), 0o600)
}
