// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// endpointsOf returns the addresses of all endpoints in a namespace.
func endpointsOf(t *testing.T, client kubernetes.Interface, namespace string) string {
	t.Helper()
	slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
	}
	return strings.Join(out, " ")
}

// TestUnpublishedServers checks that if no server writes endpoints, the service has a node port and
// no endpoints. It also checks that another server resets the service to its own configuration.
func TestUnpublishedServers(t *testing.T) {
	one := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Endpoints.Reconciler, c.Endpoints.NodePort = config.EndpointsNone, 30443
	}})
	service := func() corev1.ServiceSpec {
		s, err := one.Client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Spec
	}
	if s, endpoints := service(), endpointsOf(t, one.Client, "default"); s.Type != corev1.ServiceTypeNodePort ||
		s.Ports[0].NodePort != 30443 || endpoints != "" {
		t.Errorf("the service is %v at %d, with endpoints %q", s.Type, s.Ports[0].NodePort, endpoints)
	}
	testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir})
	if s, endpoints := service(),
		endpointsOf(t, one.Client, "default"); s.Type != corev1.ServiceTypeClusterIP ||
		s.Ports[0].NodePort != 0 || endpoints != "192.0.2.1" {
		t.Errorf("after another start the service is %v at %d, with endpoints %q", s.Type, s.Ports[0].NodePort, endpoints)
	}
}

// TestCountedServers checks that the kubernetes service has as many endpoints as the configured
// number of servers, and that these are the servers that registered last.
func TestCountedServers(t *testing.T) {
	counted := func(address string) func(*config.Config) {
		return func(c *config.Config) {
			c.AdvertiseAddress, c.Endpoints = address, config.Endpoints{Reconciler: config.EndpointsMasterCount, Count: 2}
		}
	}
	one := testserver.Start(t, testserver.Options{Configure: counted("192.0.2.1")})
	for _, step := range []struct{ address, want string }{{"192.0.2.2", "192.0.2.1 192.0.2.2"},
		{"192.0.2.3", "192.0.2.2 192.0.2.3"}} {
		testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir, Configure: counted(step.address)})
		if got := endpointsOf(t, one.Client, "default"); got != step.want {
			t.Errorf("with %s: %s, want %s", step.address, got, step.want)
		}
	}
}

// TestRestartKeepsEndpointSlice checks that a server that stops removes itself from the EndpointSlice
// of the kubernetes service, but leaves the EndpointSlice, for a server of either family.
func TestRestartKeepsEndpointSlice(t *testing.T) {
	for address, services := range map[string]string{"192.0.2.1": "10.96.0.0/16", "2001:db8::1": "fd00::/112"} {
		t.Run(address, func(t *testing.T) {
			configure := func(c *config.Config) {
				c.AdvertiseAddress = address
				c.ServiceClusterIPRanges = []netip.Prefix{netip.MustParsePrefix(services)}
			}
			one := testserver.Start(t, testserver.Options{Configure: configure})
			slice := func(s *testserver.Server) *discoveryv1.EndpointSlice {
				e, err := s.Client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			before := slice(one)
			one.Stop(t)
			two := testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir, Configure: configure})
			if after := slice(two); after.UID != before.UID || after.AddressType != before.AddressType {
				t.Errorf("the EndpointSlice was replaced: %v, had %v", after, before)
			}
			if got := endpointsOf(t, two.Client, "default"); got != address {
				t.Errorf("endpoints %q, want %s", got, address)
			}
		})
	}
}
