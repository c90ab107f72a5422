// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func podStatus(ready bool) v1.PodStatus {
	s := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	s.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status}}
	return s
}

func pod(status v1.PodStatus) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: v1.PodSpec{NodeName: "n", Hostname: "host", Subdomain: "s", Containers: []v1.Container{{
			Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080, Protocol: v1.ProtocolTCP}},
		}}},
		Status: status,
	}
}

func TestDesired(t *testing.T) {
	node := "n"
	address := func(ip string) []v1.EndpointAddress {
		return []v1.EndpointAddress{{IP: ip, Hostname: "host", NodeName: &node,
			TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p", UID: "u"}}}
	}
	web := []v1.EndpointPort{{Name: "http", Port: 8080, Protocol: v1.ProtocolTCP}}
	spec := v1.ServiceSpec{
		ClusterIP: "10.96.0.1", IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
		Ports: []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web"), Protocol: v1.ProtocolTCP}},
	}
	none := []v1.EndpointSubset{}
	for name, tc := range map[string]struct {
		change func(*v1.ServiceSpec)
		pod    *v1.Pod
		want   []v1.EndpointSubset
	}{
		"ready":     {nil, pod(podStatus(true)), []v1.EndpointSubset{{Addresses: address("10.0.0.1"), Ports: web}}},
		"not ready": {nil, pod(podStatus(false)), []v1.EndpointSubset{{NotReadyAddresses: address("10.0.0.1"), Ports: web}}},
		"not ready, but published": {
			func(s *v1.ServiceSpec) { s.PublishNotReadyAddresses = true }, pod(podStatus(false)),
			[]v1.EndpointSubset{{Addresses: address("10.0.0.1"), Ports: web}},
		},
		"other family": {
			func(s *v1.ServiceSpec) { s.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }, pod(podStatus(true)),
			[]v1.EndpointSubset{{Addresses: address("fd00::1"), Ports: web}},
		},
		"no such port": {func(s *v1.ServiceSpec) { s.Ports[0].TargetPort = intstr.FromString("admin") },
			pod(podStatus(true)), none},
		"ended": {nil,
			pod(v1.PodStatus{Phase: v1.PodFailed, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}}), none},
		"no address": {nil, pod(v1.PodStatus{Phase: v1.PodRunning}), none},
		"headless without ports": {
			func(s *v1.ServiceSpec) { s.ClusterIP, s.Ports = v1.ClusterIPNone, nil }, pod(podStatus(true)),
			[]v1.EndpointSubset{{Addresses: address("10.0.0.1")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s",
				Labels: map[string]string{"a": "b"}}, Spec: *spec.DeepCopy()}
			if tc.change != nil {
				tc.change(&s.Spec)
			}
			current := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				"kept": "yes", v1.EndpointsOverCapacity: truncated, v1.EndpointsLastChangeTriggerTime: "then",
			}}}
			got := desired(s, []*v1.Pod{tc.pod}, current, time.Unix(1, 5))
			if diff := cmp.Diff(tc.want, got.Subsets); diff != "" {
				t.Error(diff)
			}
			labels := map[string]string{"a": "b", managedByLabel: endpointsManagedBy}
			if s.Spec.ClusterIP == v1.ClusterIPNone {
				labels[v1.IsHeadlessService] = ""
			}
			if diff := cmp.Diff(labels, got.Labels); diff != "" {
				t.Error(diff)
			}
			annotations := map[string]string{"kept": "yes", v1.EndpointsLastChangeTriggerTime: "1970-01-01T00:00:01.000000005Z"}
			if diff := cmp.Diff(annotations, got.Annotations); diff != "" {
				t.Error(diff)
			}
			if !equal(got, got) || equal(current, got) {
				t.Error("equal is wrong for the same or for the earlier Endpoints")
			}
		})
	}
}

// TestEndpoints checks that the Endpoints of a Service follow its pods and are restored, and that the
// controller deletes those without a Service only when it starts.
func TestEndpoints(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	core := s.Client.CoreV1()
	// Create Endpoints without a Service before the controller starts. The controller must delete
	// them.
	if _, err := core.Endpoints("default").Create(t.Context(),
		&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "endpoint-controller", controller.Options{}, NewEndpoints)
	get := func(name string, ok func(*v1.Endpoints) bool) func(ctx context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			e, err := core.Endpoints("default").Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				e = nil
			}
			return e, ok(e)
		}
	}
	gone := func(e *v1.Endpoints) bool { return e == nil }
	controllertest.Eventually(t, "what a Service left goes", get("left", gone))
	if _, err := core.Endpoints("default").Create(t.Context(),
		&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "a"}
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: v1.ServiceSpec{Selector: labels, Ports: []v1.ServicePort{{Port: 80}}}}
	if _, err := core.Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "Endpoints without addresses",
		get("s", func(e *v1.Endpoints) bool { return e != nil && len(e.Subsets) == 0 }))
	p, err := core.Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: labels},
		Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, yes := range []bool{false, true, false} {
		p.Status = podStatus(yes)
		p.Status.PodIPs = p.Status.PodIPs[:1]
		if p, err = core.Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "Endpoints say that the pod is ready, or not", get("s", func(e *v1.Endpoints) bool {
			return len(e.Subsets) == 1 && (len(e.Subsets[0].Addresses) == 1) == yes &&
				(len(e.Subsets[0].NotReadyAddresses) == 1) != yes
		}))
	}
	// A late write with other content must be corrected, though no pod and no Service changes after it.
	late, err := core.Endpoints("default").Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	late.Subsets = nil
	if _, err := core.Endpoints("default").Update(t.Context(), late, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "a late write is corrected",
		get("s", func(e *v1.Endpoints) bool { return len(e.Subsets) == 1 }))
	// Updates of Endpoints without a Service do not matter to the controller.
	own, err := core.Endpoints("default").Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own.Labels = labels
	if _, err := core.Endpoints("default").Update(t.Context(), own, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := core.Endpoints("default").Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "Endpoints come back",
		get("s", func(e *v1.Endpoints) bool { return e != nil && len(e.Subsets) == 1 }))
	if err := core.Services("default").Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "Endpoints go with their Service", get("s", gone))
	if e, yes := get("own", gone)(t.Context()); yes {
		t.Errorf("Endpoints of another client were deleted: %v", e)
	}
}
