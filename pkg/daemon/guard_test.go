// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// TestRequestedAuthorities checks that a server names the authorities of clients that its guard has read,
// and asks for no certificate without a guard that verifies them.
func TestRequestedAuthorities(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(host string) *x509.CertPool {
		t.Helper()
		data, _, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(data)
		return pool
	}
	want := write("one")
	guard, err := NewGuard(client, file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := (&ServingFlags{BindAddress: net.IPv4(127, 0, 0, 1)}).TLS(guard)
	if err != nil {
		t.Fatal(err)
	}
	names := func(step string) {
		t.Helper()
		if c, err := config.GetConfigForClient(nil); err != nil || !c.ClientCAs.Equal(want) {
			t.Errorf("%s: other authorities, %v", step, err)
		}
	}
	names("at the start")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	names("without a content")
	want = write("two")
	if err := guard.ca.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	names("after a change")
	open, err := NewGuard(client, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Guard{nil, open} {
		if c, err := (&ServingFlags{BindAddress: net.IPv4(127, 0, 0, 1)}).TLS(g); err != nil || c.ClientAuth != 0 {
			t.Errorf("without authorities: %v, %v", c, err)
		}
	}
}
