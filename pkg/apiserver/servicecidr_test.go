// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestDeletedRangeIsNotUsed checks that a new Service gets no address of a ServiceCIDR that is being
// deleted, even if this is the default ServiceCIDR.
func TestDeletedRangeIsNotUsed(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ranges, api := s.Client.NetworkingV1().ServiceCIDRs(), s.Client.CoreV1().Services("default")
	second := netip.MustParsePrefix("10.200.0.0/24")
	if _, err := ranges.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{second.String()}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ranges.Patch(t.Context(), "kubernetes", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/keep"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ranges.Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	accepted := func(ctx context.Context, ip string) bool {
		_, err := api.Create(ctx, service("dry", func(s *corev1.Service) { s.Spec.ClusterIP = ip }),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) {
			t.Error(err)
		}
		return err == nil
	}
	// Wait until the server has seen both changes.
	eventually(t, func(ctx context.Context) bool {
		return accepted(ctx, "10.200.0.9") && !accepted(ctx, "10.96.0.9")
	})
	svc, err := api.Create(t.Context(), service("s", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !second.Contains(netip.MustParseAddr(svc.Spec.ClusterIP)) {
		t.Errorf("address %s, want one of %s", svc.Spec.ClusterIP, second)
	}
}

// withRanges returns a configuration of a server that has the given address and service ranges.
func withRanges(address string, ranges ...string) func(*config.Config) {
	return func(c *config.Config) {
		c.AdvertiseAddress, c.ServiceClusterIPRanges = address, nil
		for _, r := range ranges {
			c.ServiceClusterIPRanges = append(c.ServiceClusterIPRanges, netip.MustParsePrefix(r))
		}
	}
}

// TestSecondRangeIsAdded checks that a server that starts with a second range adds it to the default
// ServiceCIDR, so that Services get addresses of both families.
func TestSecondRangeIsAdded(t *testing.T) {
	one := testserver.Start(t, testserver.Options{Configure: withRanges("192.0.2.1", "10.96.0.0/16")})
	one.Stop(t)
	two := testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir,
		Configure: withRanges("192.0.2.1", "10.96.0.0/16", "fd00::/112")})
	both := corev1.IPFamilyPolicyRequireDualStack
	eventually(t, func(ctx context.Context) bool {
		svc, err := two.Client.CoreV1().Services("default").Create(ctx,
			service("s", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &both }), metav1.CreateOptions{})
		return err == nil && len(svc.Spec.ClusterIPs) == 2
	})
}

// TestOtherFamily checks that a server becomes ready if its service ranges have another family than the
// address of the Service default/kubernetes, which the server cannot update for this reason. It also
// checks that the server reports the difference between its ranges and the default ServiceCIDR.
func TestOtherFamily(t *testing.T) {
	one := testserver.Start(t, testserver.Options{Configure: withRanges("192.0.2.1", "10.96.0.0/16")})
	one.Stop(t)
	two := testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir,
		Configure: withRanges("2001:db8::1", "fd00::/112")})
	svc, err := two.Client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("address %s, %v; want the old one", svc.Spec.ClusterIP, err)
	}
	if got := endpointsOf(t, two.Client, "default"); got != "2001:db8::1" {
		t.Errorf("endpoints %q", got)
	}
	eventually(t, func(ctx context.Context) bool {
		events, err := two.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=ServiceCIDR,reason=KubernetesDefaultServiceCIDRInconsistent"})
		return err == nil && len(events.Items) == 1 &&
			events.Items[0].Source.Component == "kubernetes-service-cidr-controller"
	})
}
