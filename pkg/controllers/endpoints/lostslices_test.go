// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// loseSlices runs a controller. After the controller's first write of a slice with the given
// HTTP method, another client deletes the controller's slices. The controller receives the response
// to its write only after its cache has shown both the write and the deletion. The returned channel
// is closed when the slices are deleted.
func loseSlices(t *testing.T, s *testserver.Server, method string,
	build func(controller.Deps) (controller.Controller, error)) <-chan struct{} {
	t.Helper()
	lost := make(chan struct{})
	client := s.Client.DiscoveryV1().EndpointSlices("default")
	var deps controller.Deps
	var once sync.Once
	own := rest.CopyConfig(s.Config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil && r.Method == method && strings.Contains(r.URL.Path, "/endpointslices") {
				once.Do(func() {
					defer close(lost) // the deferred call also runs if Eventually fails and ends this goroutine
					// Delete only slices with the label managed-by. Slices without it are the API
					// server's own, which the server would recreate.
					controllers := metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy}
					if err := client.DeleteCollection(r.Context(), metav1.DeleteOptions{}, controllers); err != nil {
						t.Errorf("delete slices: %v", err)
					}
					// Events come in order: once the cache shows this slice, it has received the
					// events of the deletions before it.
					witness := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "witness"},
						AddressType: discoveryv1.AddressTypeIPv4}
					if _, err := client.Create(r.Context(), witness, metav1.CreateOptions{}); err != nil {
						t.Errorf("create a slice: %v", err)
					}
					controllertest.Eventually(t, "the cache sees the deletion", func(context.Context) (any, bool) {
						cached, err := deps.Informers.Discovery().V1().EndpointSlices().Lister().EndpointSlices(
							metav1.NamespaceDefault).Get(witness.Name)
						return cached, err == nil
					})
				})
			}
			return answer, err
		})
	})
	disturbed := *s
	disturbed.Config = own
	controllertest.Run(t, &disturbed, controller.Options{}, func(d controller.Deps) (controller.Controller, error) {
		deps = d
		return build(d)
	})
	return lost
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hasAddresses returns a function for controllertest.Eventually that reports whether the slices of a
// Service in the namespace default have exactly the given addresses.
func hasAddresses(s *testserver.Server, service string, addresses ...string) func(context.Context) (any, bool) {
	return func(ctx context.Context) (any, bool) {
		list, err := s.Client.DiscoveryV1().EndpointSlices("default").List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return err, false
		}
		var got []string
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				got = append(got, e.Addresses...)
			}
		}
		slices.Sort(got)
		return list.Items, slices.Equal(addresses, got)
	}
}
