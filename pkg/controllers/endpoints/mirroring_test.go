// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func endpointsOf(subsets ...v1.EndpointSubset) *v1.Endpoints {
	return &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", UID: "u"}, Subsets: subsets}
}

func subset(port int32, ips ...string) v1.EndpointSubset {
	s := v1.EndpointSubset{Ports: []v1.EndpointPort{{Name: "p", Port: port, Protocol: v1.ProtocolTCP}}}
	for _, ip := range ips {
		s.Addresses = append(s.Addresses, v1.EndpointAddress{IP: ip})
	}
	return s
}

func TestGroups(t *testing.T) {
	many := make([]string, 1000+7)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
	}
	for name, tc := range map[string]struct {
		e                *v1.Endpoints
		want             map[string]int
		invalid, skipped int
	}{
		"two families": {endpointsOf(subset(80, "10.0.0.1", "fd00::1", "10.0.0.2")),
			map[string]int{"IPv4 80": 2, "IPv6 80": 1}, 0, 0},
		"two ports": {endpointsOf(subset(80, "10.0.0.1"), subset(81, "10.0.0.2")),
			map[string]int{"IPv4 80": 1, "IPv4 81": 1}, 0, 0},
		"no address": {endpointsOf(subset(80, "nonsense", "10.0.0.2")), map[string]int{"IPv4 80": 1}, 1, 1},
		"too many":   {endpointsOf(subset(80, many...)), map[string]int{"IPv4 80": 1000}, 0, 7},
	} {
		t.Run(name, func(t *testing.T) {
			groups, invalid, skipped := groupsOf(tc.e, 1000)
			got := map[string]int{}
			for _, g := range groups {
				got[fmt.Sprint(g.family, " ", *g.ports[0].Port)] = len(g.endpoints)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || invalid != tc.invalid || skipped != tc.skipped {
				t.Errorf("%s invalid %d, skipped %d", diff, invalid, skipped)
			}
		})
	}
}

func TestPlanMirror(t *testing.T) {
	made := func(e *v1.Endpoints, names ...string) []*discoveryv1.EndpointSlice {
		groups, _, _ := groupsOf(e, 1000)
		var out []*discoveryv1.EndpointSlice
		for i, g := range groups {
			out = append(out, mirrorSlice(e, g, names[i]))
		}
		return out
	}
	labelled := endpointsOf(subset(80, "10.0.0.1"))
	labelled.Labels = map[string]string{"a": "b"}
	recreated := endpointsOf(subset(80, "10.0.0.1"))
	recreated.UID = "other"
	triggered := endpointsOf(subset(80, "10.0.0.1"))
	triggered.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: "now",
		v1.LastAppliedConfigAnnotation: "{}"}
	one := made(endpointsOf(subset(80, "10.0.0.1")), "one")
	for name, tc := range map[string]struct {
		e                      *v1.Endpoints
		existing               []*discoveryv1.EndpointSlice
		create, update, remove string
	}{
		"new":                       {endpointsOf(subset(80, "10.0.0.1")), nil, "s-,", "", ""},
		"unchanged":                 {endpointsOf(subset(80, "10.0.0.1")), one, "", "", ""},
		"only trigger time changed": {triggered, one, "", "", ""},
		"another address":           {endpointsOf(subset(80, "10.0.0.2")), one, "", "one,", ""},
		"another port":              {endpointsOf(subset(81, "10.0.0.1")), one, "", "one,", ""},
		"another family":            {endpointsOf(subset(80, "fd00::1")), one, "s-,", "", "one,"},
		"labels":                    {labelled, one, "", "one,", ""},
		"Endpoints recreated":       {recreated, one, "", "one,", ""},
		"twice": {endpointsOf(subset(80, "10.0.0.1")),
			append(made(endpointsOf(subset(80, "10.0.0.1")), "two"), one...), "", "", "one,"},
		"none":         {endpointsOf(), one, "", "", "one,"},
		"no addresses": {endpointsOf(subset(80)), one, "", "", "one,"},
	} {
		t.Run(name, func(t *testing.T) {
			groups, _, _ := groupsOf(tc.e, 1000)
			got := planMirror(tc.e, groups, tc.existing)
			names := func(slices []*discoveryv1.EndpointSlice) (out string) {
				for _, s := range slices {
					out += s.Name + s.GenerateName + ","
				}
				return out
			}
			want := []string{tc.create, tc.update, tc.remove}
			if diff := cmp.Diff(want, []string{names(got.create), names(got.update), names(got.remove)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMirroring checks that a slice follows Endpoints of a Service without a selector, and is restored
// after changes by other clients.
func TestMirroring(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	registry := prometheus.NewRegistry()
	controllertest.RunAs(t, s, "endpointslicemirroring-controller", controller.Options{},
		controllertest.WithMetrics(registry, NewMirroring))
	core := s.Client.CoreV1()
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}
	if _, err := core.Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e := endpointsOf(subset(80, "10.1.2.3"))
	e.UID = ""
	e, err := core.Endpoints("default").Create(t.Context(), e, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "a slice comes", hasAddresses(s, "s", "10.1.2.3"))
	e.Subsets = []v1.EndpointSubset{subset(90, "10.2.3.4")}
	if _, err := core.Endpoints("default").Update(t.Context(), e, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it follows", hasAddresses(s, "s", "10.2.3.4"))
	slices := s.Client.DiscoveryV1().EndpointSlices("default")
	// A late write of other annotations must be corrected. It does not increment the slice's generation.
	list, err := slices.List(t.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + mirrorManagedBy})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	late := &list.Items[0]
	late.Annotations = map[string]string{"late": "yes"}
	if late, err = slices.Update(t.Context(), late, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the annotation goes", func(ctx context.Context) (any, bool) {
		got, err := slices.Get(ctx, late.Name, metav1.GetOptions{})
		return got, err == nil && len(got.Annotations) == 0
	})
	if err := slices.DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + mirrorManagedBy}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it comes back", hasAddresses(s, "s", "10.2.3.4"))
	controllertest.Eventually(t, "the metrics show it", func(context.Context) (any, bool) {
		got := controllertest.Metrics(t, registry)
		const prefix = "endpoint_slice_mirroring_controller_"
		return got, got[prefix+"changes{operation=create}"] == 2 && got[prefix+"changes{operation=update}"] >= 1 &&
			got[prefix+"endpoints_desired"] == 1 && got[prefix+"num_endpoint_slices"] == 1 &&
			got[prefix+"desired_endpoint_slices"] == 1 && got[prefix+"endpoints_sync_duration"] >= 3
	})
	if err := core.Endpoints("default").Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it goes", hasAddresses(s, "s"))
	controllertest.Eventually(t, "the gauges show it", func(context.Context) (any, bool) {
		n := controllertest.Metrics(t, registry)["endpoint_slice_mirroring_controller_num_endpoint_slices"]
		return n, n == 0
	})
}

func TestCompare(t *testing.T) {
	before := endpointsOf(subset(80, "10.0.0.1", "10.0.0.2", "10.0.0.3"))
	var existing []*discoveryv1.EndpointSlice
	groups, _, _ := groupsOf(before, 1000)
	for _, g := range groups {
		existing = append(existing, mirrorSlice(before, g, "one"))
	}
	after := endpointsOf(subset(80, "10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5"))
	groups, _, _ = groupsOf(after, 1000)
	groups[0].endpoints[1].NodeName = &after.Name
	if added, updated, removed := compare(groups, existing); added != 2 || updated != 1 || removed != 1 {
		t.Errorf("added %d, updated %d, removed %d", added, updated, removed)
	}
}

// TestMirrorLostBetween checks that slices which another client deletes while the controller writes them
// are created again.
func TestMirrorLostBetween(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			s := testserver.Start(t, testserver.Options{})
			lost := loseSlices(t, s, method, NewMirroring)
			core := s.Client.CoreV1()
			service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
				Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}
			if _, err := core.Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			e := endpointsOf(subset(80, "10.1.2.3"))
			e.UID = ""
			e, err := core.Endpoints("default").Create(t.Context(), e, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if method == http.MethodPut {
				controllertest.Eventually(t, "a slice comes", hasAddresses(s, "s", "10.1.2.3"))
				e.Subsets = []v1.EndpointSubset{subset(80, "10.1.2.3", "10.2.3.4")}
				if e, err = core.Endpoints("default").Update(t.Context(), e, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			<-lost
			var want []string
			for _, a := range e.Subsets[0].Addresses {
				want = append(want, a.IP)
			}
			controllertest.Eventually(t, "it comes back", hasAddresses(s, "s", want...))
		})
	}
}

// TestSliceGoneBeforeItsDeletion checks that apply returns no error if a slice that it must delete
// does not exist any more (kubernetes/kubernetes#141608).
func TestSliceGoneBeforeItsDeletion(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	c := &mirroringController{
		Deps:    controller.Deps{Client: s.Client},
		slices:  newSliceView(mirrorManagedBy, nil, s.Client.DiscoveryV1()),
		metrics: newMirrorMetrics(nil),
	}
	e := endpointsOf()
	gone := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "gone", UID: "u", Labels: map[string]string{discoveryv1.LabelServiceName: e.Name},
	}}
	if err := c.apply(t.Context(), e, mirrorChanges{remove: []*discoveryv1.EndpointSlice{gone}}, nil); err != nil {
		t.Errorf("deletion of a missing slice: %v", err)
	}
}
