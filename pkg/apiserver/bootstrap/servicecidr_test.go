// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
)

// TestServiceCIDR checks what the server does with the default ServiceCIDR in each state of the object,
// and that it reports each problem with it once.
func TestServiceCIDR(t *testing.T) {
	const v4, v6, other = "10.96.0.0/16", "fd00::/112", "10.97.0.0/16"
	ready := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: "Broken", Message: "it is broken"}}
	}
	stored := func(conditions []metav1.Condition, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: DefaultServiceCIDR},
			Spec:   networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
			Status: networkingv1.ServiceCIDRStatus{Conditions: conditions}}
	}
	deleted := stored(nil, v4)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/keep"}
	const differs = "Warning KubernetesDefaultServiceCIDRInconsistent The default ServiceCIDR "
	for name, tc := range map[string]struct {
		stored  *networkingv1.ServiceCIDR
		refused string // the verb of the requests that the server refuses
		flags   string
		cidrs   string
		ready   metav1.ConditionStatus // empty if there is no condition
		event   string
	}{
		"missing": {nil, "", v4 + "," + v6, v4 + "," + v6, "True", ""},
		"ready":   {stored(ready("True"), v4), "", v4, v4, "True", ""},
		"no condition, two ranges": {stored(nil, v6, v4), "", v6 + "," + v4,
			v6 + "," + v4, "True", ""},
		"unknown condition": {stored(ready("Unknown"), v4), "", v4, v4, "True", ""},
		"not ready": {stored(ready("False"), v4), "", v4, v4, "False",
			"Warning Broken Configuration matches, but it is broken"},
		"second range": {stored(ready("True"), v4), "", v4 + "," + v6, v4 + "," + v6, "True", ""},
		"second range refused": {stored(ready("True"), v4), "update", v4 + "," + v6, v4, "True",
			"Warning KubernetesDefaultServiceCIDRError The default ServiceCIDR can not be upgraded from " +
				"10.96.0.0/16 to dual stack [10.96.0.0/16 fd00::/112] : servicecidrs.networking.k8s.io \"kubernetes\" is " +
				"forbidden: no"},
		"status refused": {stored(nil, v4), "patch", v4, v4, "",
			"Warning KubernetesDefaultServiceCIDRError The default ServiceCIDR Status can not be set to Ready=True"},
		"new primary range": {stored(ready("True"), v4), "", v6 + "," + v4, v4, "True",
			differs + "[10.96.0.0/16] does not match the controller flag configurations [fd00::/112 10.96.0.0/16]"},
		"other range, no condition": {stored(nil, v4), "", other, v4, "",
			differs + "[10.96.0.0/16] does not match the controller flag configurations [10.97.0.0/16]"},
		"second range removed": {stored(ready("True"), v4, v6), "", v4, v4 + "," + v6, "True",
			differs + "[10.96.0.0/16 fd00::/112] does not match the controller flag configurations [10.96.0.0/16]"},
		"being deleted": {deleted, "", v4, v4, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if tc.stored != nil {
				if err := client.Tracker().Add(tc.stored.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			if tc.refused != "" {
				client.PrependReactor(tc.refused, "servicecidrs", func(kubetesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(networkingv1.Resource("servicecidrs"), DefaultServiceCIDR,
						errors.New("no"))
				})
			}
			events := record.NewFakeRecorder(10)
			c := &ServiceCIDR{Client: client, Events: events, Clock: testclock.NewFakeClock(time.Unix(9, 0)),
				Log: slog.New(slog.DiscardHandler)}
			for _, r := range strings.Split(tc.flags, ",") {
				c.Ranges = append(c.Ranges, netip.MustParsePrefix(r))
			}
			if err := c.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := recorded(events)
			if tc.refused == "" { // a refused request is sent again, which causes another event
				if err := c.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				got = append(got, recorded(events)...)
			}
			o, err := client.NetworkingV1().ServiceCIDRs().Get(t.Context(), DefaultServiceCIDR, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if cidrs := strings.Join(o.Spec.CIDRs, ","); cidrs != tc.cidrs {
				t.Errorf("ranges %s, want %s", cidrs, tc.cidrs)
			}
			var is metav1.ConditionStatus
			if c := meta.FindStatusCondition(o.Status.Conditions, "Ready"); c != nil {
				is = c.Status
			}
			if is != tc.ready {
				t.Errorf("condition Ready is %q, want %q", is, tc.ready)
			}
			if want := slices.DeleteFunc([]string{tc.event}, func(s string) bool { return s == "" }); !slices.Equal(got, want) {
				t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// recorded returns the events that were recorded since the last call.
func recorded(r *record.FakeRecorder) (out []string) {
	for len(r.Events) > 0 {
		out = append(out, <-r.Events)
	}
	return out
}
