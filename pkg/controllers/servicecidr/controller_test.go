// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package servicecidr

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestRemovable(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	cidr := func(name string, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	deleted := func(r *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
		r.DeletionTimestamp = &going
		return r
	}
	for name, tc := range map[string]struct {
		cidrs     []string
		others    []*networkingv1.ServiceCIDR
		addresses []string
		want      bool
	}{
		"no addresses":          {[]string{"10.0.0.0/24"}, nil, nil, true},
		"an address":            {[]string{"10.0.0.0/24"}, nil, []string{"10.0.0.5"}, false},
		"an address of another": {[]string{"10.0.0.0/24"}, nil, []string{"10.0.1.5"}, true},
		"network address":       {[]string{"10.0.0.0/24"}, nil, []string{"10.0.0.0"}, true},
		"broadcast address":     {[]string{"10.0.0.0/24"}, nil, []string{"10.0.0.255"}, true},
		"the last one of IPv6":  {[]string{"fd00::/120"}, nil, []string{"fd00::ff"}, false},
		"in a larger range": {[]string{"10.0.0.0/24"},
			[]*networkingv1.ServiceCIDR{cidr("o", "10.0.0.0/16")}, []string{"10.0.0.5"}, true},
		"in an equal range": {[]string{"10.0.0.0/24"},
			[]*networkingv1.ServiceCIDR{cidr("o", "10.0.0.0/24")}, []string{"10.0.0.5"}, true},
		"in a terminating range": {[]string{"10.0.0.0/24"},
			[]*networkingv1.ServiceCIDR{deleted(cidr("o", "10.0.0.0/24"))}, []string{"10.0.0.5"}, false},
		"in a smaller range": {[]string{"10.0.0.0/24"},
			[]*networkingv1.ServiceCIDR{cidr("o", "10.0.0.0/28")}, []string{"10.0.0.5"}, true},
		"not in a smaller range": {[]string{"10.0.0.0/24"},
			[]*networkingv1.ServiceCIDR{cidr("o", "10.0.0.0/28")}, []string{"10.0.0.55"}, false},
		"the other family": {[]string{"10.0.0.0/24", "fd00::/64"},
			[]*networkingv1.ServiceCIDR{cidr("o", "10.0.0.0/16")}, []string{"10.0.0.5", "fd00::5"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := deleted(cidr("r", tc.cidrs...))
			var addresses []*networkingv1.IPAddress
			for _, a := range tc.addresses {
				addresses = append(addresses,
					&networkingv1.IPAddress{
						ObjectMeta: metav1.ObjectMeta{Name: a, Labels: map[string]string{networkingv1.LabelManagedBy: allocator}}})
			}
			if got := removable(r, append(tc.others, r), addresses); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "service-cidrs-controller", controller.Options{},
		func(d controller.Deps) (controller.Controller, error) { return newController(d, time.Second) })
	ranges := s.Client.NetworkingV1().ServiceCIDRs()
	if _, err := ranges.Create(t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.250.0.0/24"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := func(status metav1.ConditionStatus) func(ctx context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			r, err := ranges.Get(ctx, "more", metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			c := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
			return r, c != nil && c.Status == status && slices.Contains(r.Finalizers, finalizer)
		}
	}
	controllertest.Eventually(t, "the range is ready", ready(metav1.ConditionTrue))
	services := s.Client.CoreV1().Services("default")
	// Retry, because the server's address allocator uses the new range only after a delay.
	controllertest.Eventually(t, "a Service gets an address of it", func(ctx context.Context) (any, bool) {
		_, err := services.Create(ctx, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1.ServiceSpec{
			ClusterIP: "10.250.0.7", Ports: []v1.ServicePort{{Port: 80}},
		}}, metav1.CreateOptions{})
		return err, err == nil
	})
	if err := ranges.Delete(t.Context(), "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it stays, and is not ready", ready(metav1.ConditionFalse))
	if err := services.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it goes after its last address", func(ctx context.Context) (any, bool) {
		r, err := ranges.Get(ctx, "more", metav1.GetOptions{})
		return r, apierrors.IsNotFound(err)
	})
}
