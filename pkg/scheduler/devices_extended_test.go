// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// stand creates a device class that provides the extended resource name.
func stand(t *testing.T, c kubernetes.Interface, class, name string) {
	t.Helper()
	got, err := c.ResourceV1().DeviceClasses().Get(t.Context(), class, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Spec.ExtendedResourceName = &name
	if _, err := c.ResourceV1().DeviceClasses().Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// asks returns a change of a pod that makes its container request the given extended resources.
func asks(what ...string) func(*v1.Pod) {
	list := amounts(what...)
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	}
}

func amounts(what ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for _, w := range what {
		name, n, _ := strings.Cut(w, "=")
		list[v1.ResourceName(name)] = resource.MustParse(n)
	}
	return list
}

// specials returns the claims that the scheduler created for extended resources.
func specials(t *testing.T, c kubernetes.Interface) []resourcev1.ResourceClaim {
	t.Helper()
	all, err := c.ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(claim resourcev1.ResourceClaim) bool {
		return claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true"
	})
}

func TestExtendedResourceOfAClass(t *testing.T) {
	c := withDevices(t)
	create(t, c, pod("early", asks("example.com/gpu=2", "cpu=1")))
	await(t, c, "early", "no such resource", refused("2 Insufficient example.com/gpu"))
	stand(t, c, "small", "example.com/gpu")
	p := await(t, c, "early", "bound", bound)
	if p.Spec.NodeName != "b" {
		t.Errorf("pod is on %s, want b", p.Spec.NodeName)
	}
	status := p.Status.ExtendedResourceClaimStatus
	want := []v1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "example.com/gpu",
		RequestName: "container-0-request-1"}}
	if status == nil || !slices.Equal(status.RequestMappings, want) {
		t.Fatalf("status %+v, want mappings %v", status, want)
	}
	claim := getClaim(t, c, status.ResourceClaimName)
	if !strings.HasPrefix(claim.Name, "early-extended-resources-") || !metav1.IsControlledBy(claim, p) ||
		claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" ||
		!slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		t.Errorf("claim %+v", claim.ObjectMeta)
	}
	if a := claim.Status.Allocation; a == nil || len(a.Devices.Results) != 2 {
		t.Errorf("allocation %+v, want 2 devices", a)
	}
	if r := claim.Status.ReservedFor; len(r) != 1 || r[0].UID != p.UID {
		t.Errorf("reserved for %v", r)
	}
	// No device is left for another pod, whether it requests the device by the extended resource or
	// by the class.
	create(t, c, pod("late", asks("deviceclass.resource.kubernetes.io/small=1")))
	await(t, c, "late", "no device", refused("2 cannot allocate all claims"))
	if n := len(specials(t, c)); n != 1 {
		t.Errorf("%d claims, want 1", n)
	}
	claim.Status = resourcev1.ResourceClaimStatus{}
	if _, err := c.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), claim,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "late", "bound", bound)
}

// TestExtendedResourceOfANode checks that a pod gets an extended resource from the node's own
// status, if the node has it there, rather than devices.
func TestExtendedResourceOfANode(t *testing.T) {
	c := withDevices(t)
	addNode(t, c, "plugin", nil)
	node, err := c.CoreV1().Nodes().Get(t.Context(), "plugin", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []v1.ResourceList{node.Status.Allocatable, node.Status.Capacity} {
		list["example.com/gpu"] = resource.MustParse("1")
	}
	if _, err := c.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stand(t, c, "large", "example.com/gpu")
	on := map[string]bool{}
	for _, name := range []string{"one", "two"} {
		create(t, c, pod(name, asks("example.com/gpu=1")))
		p := await(t, c, name, "bound", bound)
		on[p.Spec.NodeName] = true
		if made := p.Status.ExtendedResourceClaimStatus != nil; made != (p.Spec.NodeName == "a") {
			t.Errorf("on %s: status %v", p.Spec.NodeName, p.Status.ExtendedResourceClaimStatus)
		}
	}
	if !on["a"] || !on["plugin"] {
		t.Errorf("pods are on %v", on)
	}
	create(t, c, pod("none", asks("example.com/gpu=0")))
	if p := await(t, c, "none", "bound", bound); p.Status.ExtendedResourceClaimStatus != nil {
		t.Errorf("a pod without such a request has %v", p.Status.ExtendedResourceClaimStatus)
	}
	if n := len(specials(t, c)); n != 1 {
		t.Errorf("%d claims, want 1", n)
	}
}

// TestExtendedResourcesShareRequests checks that init containers which end before other containers
// start use the devices of a later container or, if there are too few, share one further request.
func TestExtendedResourcesShareRequests(t *testing.T) {
	c := withDevices(t)
	stand(t, c, "small", "example.com/gpu")
	create(t, c, pod("p", func(p *v1.Pod) {
		asks("example.com/gpu=1")(p)
		for _, name := range []string{"first", "sidecar", "second", "third"} {
			one := p.Spec.Containers[0]
			one.Name = name
			p.Spec.InitContainers = append(p.Spec.InitContainers, one)
		}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
		p.Spec.InitContainers[1].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	}))
	p := await(t, c, "p", "bound", bound)
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		t.Fatal("no status")
	}
	got := map[string]string{}
	for _, m := range status.RequestMappings {
		got[m.ContainerName] = m.RequestName
	}
	for name, want := range map[string]string{
		"sidecar": "container-1-request-0", "first": "container-1-request-0", "second": "container-2-request-0",
		"third": "container-2-request-0",
	} {
		if got[name] != want {
			t.Errorf("container %s has %q, want %q", name, got[name], want)
		}
	}
	claim := getClaim(t, c, status.ResourceClaimName)
	if n := len(claim.Spec.Devices.Requests); n != 2 || len(status.RequestMappings) != 4 {
		t.Errorf("%d requests, mappings %v", n, status.RequestMappings)
	}
}

// TestStaleExtendedClaim checks that the scheduler deletes a claim for extended resources that an
// earlier scheduler left, and that the pod gets a new claim.
func TestStaleExtendedClaim(t *testing.T) {
	c := unfollowed(t).Client
	stand(t, c, "large", "example.com/gpu")
	p := create(t, c, pod("p", asks("example.com/gpu=1")))
	stale := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "stale", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		Finalizers:      []string{resourcev1.Finalizer},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, v1.SchemeGroupVersion.WithKind("Pod"))},
	}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("large", 1)}}}}
	if _, err := c.ResourceV1().ResourceClaims("default").Create(t.Context(), stale, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, c)
	p = await(t, c, "p", "bound", bound)
	made := specials(t, c)
	if len(made) != 1 || made[0].Name == "stale" || p.Status.ExtendedResourceClaimStatus == nil ||
		p.Status.ExtendedResourceClaimStatus.ResourceClaimName != made[0].Name {
		t.Errorf("claims %v, status %v", made, p.Status.ExtendedResourceClaimStatus)
	}
}

// failsOnce is a transport that fails the first request for which its function returns true.
type failsOnce struct {
	http.RoundTripper
	it     func(*http.Request) bool
	failed *atomic.Bool
}

func (f failsOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.it(r) && f.failed.CompareAndSwap(false, true) {
		return nil, errors.New("the line is cut")
	}
	return f.RoundTripper.RoundTrip(r)
}

// TestExtendedClaimIsTakenBack lets one request of an attempt fail. It checks that the next attempt
// can use the devices, and that no claim is left over.
func TestExtendedClaimIsTakenBack(t *testing.T) {
	for name, it := range map[string]func(*http.Request) bool{
		"claim not created": func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/resourceclaims")
		},
		"claim not allocated": func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/status") &&
				strings.Contains(r.URL.Path, "/resourceclaims/")
		},
		"pod status not written": func(r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/pods/p/status")
		},
		"pod not bound": func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/bindingbatches")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, failed := unfollowed(t), &atomic.Bool{}
			stand(t, s.Client, "large", "example.com/gpu") // this class has one device
			config := rest.CopyConfig(s.Config)
			config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return failsOnce{rt, it, failed} })
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			follow(t, client)
			create(t, s.Client, pod("p", asks("example.com/gpu=1")))
			p := await(t, s.Client, "p", "bound", bound)
			made := specials(t, s.Client)
			if !failed.Load() || len(made) != 1 || p.Status.ExtendedResourceClaimStatus == nil ||
				p.Status.ExtendedResourceClaimStatus.ResourceClaimName != made[0].Name {
				t.Errorf("failed %v, claims %v, status %v", failed.Load(), made, p.Status.ExtendedResourceClaimStatus)
			}
		})
	}
}
