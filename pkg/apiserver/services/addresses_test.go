// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
)

// now is the time of the checks in the tests.
func now() time.Time { return time.Unix(1e9, 0) }

// checker returns a Repair for a cluster with one ServiceCIDR, and a reader of the given objects.
func checker(t *testing.T, services []*corev1.Service, ips ...*networkingv1.IPAddress) (*Repair, reader) {
	t.Helper()
	ranges := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	deleted := metav1.NewTime(now())
	if err := ranges.Add(&networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", DeletionTimestamp: &deleted},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24", "fd00::/112"}},
	}); err != nil {
		t.Fatal(err)
	}
	r := &Repair{RepairDeps: RepairDeps{Clock: testclock.NewFakeClock(now())},
		ranges: networkinglisters.NewServiceCIDRLister(ranges)}
	return r, reader{
		func(namespace, name string) (*corev1.Service, error) {
			for _, s := range services {
				if s.Namespace == namespace && s.Name == name {
					return s, nil
				}
			}
			return nil, nil
		},
		func(name string) (*networkingv1.IPAddress, error) {
			for _, o := range ips {
				if o.Name == name {
					return o, nil
				}
			}
			return nil, nil
		},
	}
}

// serviceWith returns a service in the namespace ns that was created an hour ago.
func serviceWith(name string, ips ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		CreationTimestamp: metav1.NewTime(now().Add(-time.Hour))}}
	if len(ips) > 0 {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips
	}
	return s
}

// addressOf returns the IPAddress of a service as the allocator creates it, with an age.
func addressOf(service, ip string, age time.Duration) *networkingv1.IPAddress {
	family, _ := familyOf(ip)
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, CreationTimestamp: metav1.NewTime(now().Add(-age)),
			Labels: map[string]string{familyLabel: string(family), managerLabel: manager}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: "ns", Name: service}},
	}
}

// with returns o after a change.
func with(o *networkingv1.IPAddress, how func(*networkingv1.IPAddress)) *networkingv1.IPAddress {
	how(o)
	return o
}

func TestCheckService(t *testing.T) {
	unlabel := func(o *networkingv1.IPAddress) { o.Labels = nil }
	ofGateway := func(o *networkingv1.IPAddress) { o.Spec.ParentRef.Group = "gateway.networking.k8s.io" }
	const wrong = "ClusterIPNotAllocated: the ClusterIP [IPv4]: 10.0.0.1 for Service ns/s has a wrong reference; repairing"
	for name, tc := range map[string]struct {
		service *corev1.Service
		others  []*corev1.Service
		address *networkingv1.IPAddress
		want    string // reason and message of the event
		remedy  remedy
	}{
		"without an address": {service: serviceWith("s")},
		"headless":           {service: serviceWith("s", "None")},
		"as it should be":    {service: serviceWith("s", "10.0.0.1"), address: addressOf("s", "10.0.0.1", 0)},
		"other spelling":     {service: serviceWith("s", "FD00:0::1"), address: addressOf("s", "fd00::1", 0)},
		"missing": {service: serviceWith("s", "fd00::1"), remedy: create,
			want: "ClusterIPNotAllocated: Cluster IP [IPv6]: fd00::1 is not allocated; repairing"},
		"out of range": {service: serviceWith("s", "10.1.0.1"), address: addressOf("s", "10.1.0.1", 0),
			want: "ClusterIPOutOfRange: Cluster IP [IPv4]: 10.1.0.1 is not within any configured Service CIDR; " +
				"please recreate service"},
		"broadcast address": {service: serviceWith("s", "10.0.0.255"),
			want: "ClusterIPOutOfRange: Cluster IP [IPv4]: 10.0.0.255 is not within any configured Service CIDR; " +
				"please recreate service"},
		"not of a service": {service: serviceWith("s", "10.0.0.1"), remedy: replace, want: wrong,
			address: with(addressOf("s", "10.0.0.1", 0), ofGateway)},
		"of a deleted service": {service: serviceWith("s", "10.0.0.1"), remedy: replace, want: wrong,
			address: addressOf("other", "10.0.0.1", 0)},
		"of two services": {service: serviceWith("s", "10.0.0.1"), address: addressOf("other", "10.0.0.1", 0),
			others: []*corev1.Service{serviceWith("other", "10.0.0.1")},
			want: "ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.0.0.1 was assigned to multiple services; " +
				"please recreate service"},
		"of another service that does not have it": {service: serviceWith("s", "10.0.0.1"),
			address: addressOf("other", "10.0.0.1", 0), others: []*corev1.Service{serviceWith("other", "10.0.0.2")}},
		"without labels": {service: serviceWith("s", "10.0.0.1"), remedy: replace, want: ": the labels of IPAddress " +
			"10.0.0.1 are wrong; repairing", address: with(addressOf("s", "10.0.0.1", 0), unlabel)},
	} {
		t.Run(name, func(t *testing.T) {
			var ips []*networkingv1.IPAddress
			if tc.address != nil {
				ips = append(ips, tc.address)
			}
			r, from := checker(t, tc.others, ips...)
			problems, err := r.checkService(from, tc.service)
			if err != nil || len(problems) > 1 {
				t.Fatal(problems, err)
			}
			var got string
			var how remedy
			for _, p := range problems {
				got, how = p.reason+": "+p.note, p.remedy
			}
			if got != tc.want || how != tc.remedy {
				t.Errorf("got %q, remedy %q; want %q, remedy %q", got, how, tc.want, tc.remedy)
			}
		})
	}
}

func TestCheckAddress(t *testing.T) {
	externalService := serviceWith("s")
	externalService.Spec.Type = corev1.ServiceTypeExternalName
	young := serviceWith("s", "10.0.0.2")
	young.CreationTimestamp = metav1.NewTime(now())
	const leaked = "IPAddressNotAllocated: IPAddress: 10.0.0.1 for Service ns/s appears to have leaked: cleaning up"
	const wrong = "IPAddressWrongReference: IPAddress: 10.0.0.1 for Service ns/s has a wrong reference; cleaning up"
	for name, tc := range map[string]struct {
		service *corev1.Service
		address *networkingv1.IPAddress
		want    string // reason and message of the event before the deletion
		again   time.Duration
	}{
		"as it should be": {serviceWith("s", "10.0.0.1"), addressOf("s", "10.0.0.1", 0), "", 0},
		"second address":  {serviceWith("s", "fd00::1", "10.0.0.1"), addressOf("s", "10.0.0.1", 0), "", 0},
		"other spelling":  {serviceWith("s", "FD00:0::1"), addressOf("s", "fd00::1", time.Hour), "", 0},
		"of somebody else": {nil, with(addressOf("s", "10.0.0.1", time.Hour), func(o *networkingv1.IPAddress) {
			o.Labels[managerLabel] = "me"
		}), "", 0},
		"not of a service": {nil, with(addressOf("s", "10.0.0.1", 0), func(o *networkingv1.IPAddress) {
			o.Spec.ParentRef = nil
		}), "IPAddressNotAllocated: IPAddress 10.0.0.1 appears to have been modified, not referencing a Service " +
			"nil: cleaning up", 0},
		"service may be created": {nil, addressOf("s", "10.0.0.1", 59*time.Second), "", time.Second},
		"leaked":                 {nil, addressOf("s", "10.0.0.1", time.Minute), leaked, 0},
		"service may be changed": {externalService, addressOf("s", "10.0.0.1", 20*time.Second), "", 40 * time.Second},
		"service not changed":    {externalService, addressOf("s", "10.0.0.1", time.Minute), wrong, 0},
		"service may get it": {serviceWith("s", "10.0.0.2"), addressOf("s", "10.0.0.1", 4*time.Second), "",
			5 * time.Second},
		"service did not get it": {serviceWith("s", "10.0.0.2"), addressOf("s", "10.0.0.1", 5*time.Second), wrong, 0},
		"older than the service": {young, addressOf("s", "10.0.0.1", time.Second), wrong, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var services []*corev1.Service
			if tc.service != nil {
				services = append(services, tc.service)
			}
			r, from := checker(t, services)
			p, again, err := r.checkAddress(from, tc.address)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if p != nil {
				if got = p.reason + ": " + p.note; p.remedy != remove {
					t.Errorf("remedy %q", p.remedy)
				}
			}
			if got != tc.want || again != tc.again {
				t.Errorf("got %q, again after %v; want %q, again after %v", got, again, tc.want, tc.again)
			}
		})
	}
}
