// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"net/http"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// createPod creates a pod with the given IP address and makes it ready.
func createPod(t *testing.T, s *testserver.Server, name, ip string) {
	t.Helper()
	pods := s.Client.CoreV1().Pods("default")
	p, err := pods.Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Ready(p)
	p.Status.PodIP, p.Status.PodIPs = ip, []v1.PodIP{{IP: ip}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestSlicesLostBetween checks that slices which another client deletes while the controller writes them
// are created again.
func TestSlicesLostBetween(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			s := testserver.Start(t, testserver.Options{})
			controllertest.Account(t, s)
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			lost := loseSlices(t, s, method, NewSlices)
			service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1.ServiceSpec{
				Selector: map[string]string{"app": "a"}, Ports: []v1.ServicePort{{Port: 80}},
			}}
			if _, err := s.Client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			createPod(t, s, "p1", "10.1.2.3")
			want := []string{"10.1.2.3"}
			if method == http.MethodPut {
				controllertest.Eventually(t, "a slice comes", hasAddresses(s, "s", want...))
				createPod(t, s, "p2", "10.2.3.4")
				want = append(want, "10.2.3.4")
			}
			<-lost
			controllertest.Eventually(t, "it comes back", hasAddresses(s, "s", want...))
		})
	}
}

// TestTrafficDistribution checks that each traffic distribution that prefers near endpoints adds
// the expected hints to the slices, and that syncs are counted in metrics.
func TestTrafficDistribution(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.LabelTopologyZone: "z"}}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, s, controller.Options{}, NewSlices)
	createPod(t, s, "p", "10.1.2.3")
	zone, near := []discoveryv1.ForZone{{Name: "z"}}, []discoveryv1.ForNode{{Name: "n"}}
	for name, tc := range map[string]struct {
		distribution string
		want         discoveryv1.EndpointHints
	}{
		"close": {v1.ServiceTrafficDistributionPreferClose, discoveryv1.EndpointHints{ForZones: zone}},
		"zone":  {v1.ServiceTrafficDistributionPreferSameZone, discoveryv1.EndpointHints{ForZones: zone}},
		"node":  {v1.ServiceTrafficDistributionPreferSameNode, discoveryv1.EndpointHints{ForZones: zone, ForNodes: near}},
	} {
		service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{
			Selector: map[string]string{"app": "a"}, Ports: []v1.ServicePort{{Port: 80}}, TrafficDistribution: &tc.distribution,
		}}
		if _, err := s.Client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "hints of "+tc.distribution, func(ctx context.Context) (any, bool) {
			list, err := s.Client.DiscoveryV1().EndpointSlices("default").List(ctx,
				metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 {
				return list, false
			}
			got := list.Items[0].Endpoints[0].Hints
			return got, got != nil && reflect.DeepEqual(*got, tc.want)
		})
	}
	got := controllertest.Metrics(t, legacyregistry.DefaultGatherer)
	for _, name := range []string{"syncs{result=success}", "changes{operation=create}", "num_endpoint_slices",
		"endpoints_desired"} {
		if got["endpoint_slice_controller_"+name] == 0 {
			t.Errorf("%s is 0", name)
		}
	}
}
