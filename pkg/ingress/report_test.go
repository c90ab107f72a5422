// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errBroken = errors.New("connection broke")

// TestStatusRetried checks that the controller writes the addresses of an Ingress into its status although
// the first request fails and no object changes after that.
func TestStatusRetried(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx, networking := t.Context(), s.Client.NetworkingV1()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	public, err := s.Client.CoreV1().Services("default").Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "public"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must(err)
	public.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	public, err = s.Client.CoreV1().Services("default").UpdateStatus(ctx, public, metav1.UpdateOptions{})
	must(err)
	_, err = networking.IngressClasses().Create(ctx, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: networkingv1.IngressClassSpec{Controller: service.IngressController}}, metav1.CreateOptions{})
	must(err)
	_, err = networking.Ingresses("default").Create(ctx, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "i"},
		Spec: networkingv1.IngressSpec{IngressClassName: new("c"),
			Rules: []networkingv1.IngressRule{{Host: "a.example.com"}}}}, metav1.CreateOptions{})
	must(err)

	var broken atomic.Bool
	failed := make(chan struct{}, 1)
	own := rest.CopyConfig(s.Config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && broken.CompareAndSwap(true, false) {
				failed <- struct{}{}
				return nil, errBroken
			}
			return next.RoundTrip(r)
		})
	})
	client, err := kubernetes.NewForConfig(own)
	must(err)
	log := slog.New(slog.DiscardHandler)
	c, err := NewController(client, NewProxy(Options{Clock: clock.Real(), Log: log, Metrics: prometheus.NewRegistry()}),
		types.NamespacedName{Namespace: "default", Name: "public"}, clock.Real(), log)
	must(err)
	run, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(run, func() {}) }()
	defer func() {
		stop()
		must(<-done)
	}()
	becomes := func(ip string) {
		t.Helper()
		controllertest.Eventually(t, ip, func(ctx context.Context) (any, bool) {
			i, err := networking.Ingresses("default").Get(ctx, "i", metav1.GetOptions{})
			at := i.Status.LoadBalancer.Ingress
			return at, err == nil && len(at) == 1 && at[0].IP == ip
		})
	}
	becomes("192.0.2.1")
	broken.Store(true)
	public.Status.LoadBalancer.Ingress[0].IP = "192.0.2.2"
	_, err = s.Client.CoreV1().Services("default").UpdateStatus(ctx, public, metav1.UpdateOptions{})
	must(err)
	<-failed
	becomes("192.0.2.2")
}
