// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build keelson

// Package etcd is a part of Kubernetes' package test/integration/etcd. The script that runs
// Kubernetes' integration tests adds this file to the package and renames the function that it
// replaces. The build tag keeps it out of other builds, where it would lack the rest of its package.
package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/integration"
	"k8s.io/kubernetes/test/integration/framework"

	"keelson.dev/keelson/test/conformance/integration/server"
)

// StartRealAPIServerOrDie starts a server that serves all of its APIs and stores JSON.
func StartRealAPIServerOrDie(t *testing.T, configure ...func(*options.ServerRunOptions)) *APIServer {
	t.Helper()
	dir := t.TempDir()
	opts := realOptions(t, dir)
	for _, f := range configure {
		f(opts)
	}
	raw, kv, err := integration.GetEtcdClients(opts.Etcd.StorageConfig.Transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() }) // if the test ends before it calls Cleanup
	if _, err := kv.Delete(t.Context(), "/registry/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(t.Context(), t, server.Config{Options: opts, Flags: []*pflag.FlagSet{}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(s.Client)
	config.QPS, config.Burst = 99999, 9999
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // the tests use all APIs, deprecated ones too
	client := kubernetes.NewForConfigOrDie(config)
	CreateTestCRDs(t, apiextensionsclientset.NewForConfigOrDie(config), false, GetCustomResourceDefinitionData()...)
	_, resources, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	return &APIServer{
		Client:    client,
		Dynamic:   dynamic.NewForConfigOrDie(config),
		Config:    config,
		KV:        kv,
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(client.Discovery())),
		Resources: GetResources(t, resources),
		Cleanup: func() {
			if err := s.Stop(); err != nil {
				t.Logf("Server did not end with success: %v", err)
			}
			_ = raw.Close()
		},
	}
}

// realOptions returns the options of a server before the test changes them.
func realOptions(t *testing.T, dir string) *options.ServerRunOptions {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(signer)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "service-account.key")
	if err := keyutil.WriteKey(key, data); err != nil {
		t.Fatal(err)
	}
	opts := options.NewServerRunOptions()
	opts.SecureServing.ServerCert.CertDirectory = dir
	opts.ServiceAccountSigningKeyFile = key
	opts.Etcd.StorageConfig.Transport.ServerList = []string{framework.GetEtcdURL()}
	opts.ServiceClusterIPRanges = "10.0.0.0/24"
	opts.Authentication.APIAudiences = []string{"https://foo.bar.example.com"}
	opts.Authentication.ServiceAccounts.Issuers = []string{"https://foo.bar.example.com"}
	opts.Authentication.ServiceAccounts.KeyFiles = []string{key}
	opts.Authorization.Modes = []string{"RBAC"}
	opts.Admission.GenericAdmission.DisablePlugins = []string{"ServiceAccount"}
	opts.APIEnablement.RuntimeConfig["api/all"] = "true"
	return opts
}
