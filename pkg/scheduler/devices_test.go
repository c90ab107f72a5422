// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const driver = "gpu.example.com"

func addClass(t *testing.T, c kubernetes.Interface, name, expression string) {
	t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	if _, err := c.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addDevices publishes devices of a node, one for each model in models.
func addDevices(t *testing.T, c kubernetes.Interface, node string, models ...string) {
	t.Helper()
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "devices-of-" + node},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}}
	for i, model := range models {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"model": {StringValue: &model}},
		})
	}
	if _, err := c.ResourceV1().ResourceSlices().Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func addClaim(t *testing.T, c kubernetes.Interface, name string, requests ...resourcev1.DeviceRequest) {
	t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: requests},
	}}
	if _, err := c.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func exactly(class string, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}
}

func getClaim(t *testing.T, c kubernetes.Interface, name string) *resourcev1.ResourceClaim {
	t.Helper()
	claim, err := c.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// uses returns a change of a pod that makes it use existing claims.
func uses(claims ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, name := range claims {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
				v1.PodResourceClaim{Name: name, ResourceClaimName: ptr.To(name)})
			p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: name})
		}
	}
}

// withDevices starts an API server and a scheduler, with two nodes: node a has one large device,
// node b has two small devices. The scheduler's caches contain them when withDevices returns.
func withDevices(t *testing.T) kubernetes.Interface {
	c := unfollowed(t).Client
	follow(t, c)
	return c
}

// unfollowed starts an API server with the nodes and devices that withDevices describes, but no
// scheduler.
func unfollowed(t *testing.T) *testserver.Server {
	s := testserver.Start(t, testserver.Options{})
	c := s.Client
	addAccount(t, c)
	for _, name := range []string{"a", "b"} {
		addNode(t, c, name, nil)
	}
	addDevices(t, c, "a", "large")
	addDevices(t, c, "b", "small", "small")
	addClass(t, c, "any", `device.driver == "`+driver+`"`)
	for _, model := range []string{"large", "small"} {
		addClass(t, c, model, `device.attributes["`+driver+`"].model == "`+model+`"`)
	}
	return s
}

func TestClaimsGetTheirDevices(t *testing.T) {
	c := withDevices(t)
	addClaim(t, c, "one", exactly("large", 1))
	addClaim(t, c, "two", exactly("small", 2))
	create(t, c, pod("large", uses("one")))
	create(t, c, pod("small", uses("two")))
	for name, node := range map[string]string{"large": "a", "small": "b"} {
		if p := await(t, c, name, "bound", bound); p.Spec.NodeName != node {
			t.Errorf("pod %s is on %s, want %s", name, p.Spec.NodeName, node)
		}
	}
	for name, count := range map[string]int{"one": 1, "two": 2} {
		claim := getClaim(t, c, name)
		if a := claim.Status.Allocation; a == nil || len(a.Devices.Results) != count || a.AllocationTimestamp == nil {
			t.Errorf("claim %s: allocation %+v, want %d devices", name, a, count)
		}
		if len(claim.Status.ReservedFor) != 1 || len(claim.Finalizers) != 1 {
			t.Errorf("claim %s: reserved for %v, finalizers %v", name, claim.Status.ReservedFor, claim.Finalizers)
		}
	}
	// All devices are allocated, so one more pod must wait until a claim is deallocated.
	addClaim(t, c, "three", exactly("large", 1))
	create(t, c, pod("waits", uses("three")))
	const want = "0/2 nodes are available: 2 cannot allocate all claims. " +
		"preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
	await(t, c, "waits", want, refused(want))
	one := getClaim(t, c, "one")
	one.Status = resourcev1.ResourceClaimStatus{}
	if _, err := c.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), one,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := await(t, c, "waits", "bound", bound); p.Spec.NodeName != "a" {
		t.Errorf("pod is on %s, want a", p.Spec.NodeName)
	}
}

// TestClaimIsShared checks that pods which share a claim run on the node that has the claim's
// devices.
func TestClaimIsShared(t *testing.T) {
	c := withDevices(t)
	addClaim(t, c, "shared", exactly("small", 1))
	for i := range 5 {
		create(t, c, pod(fmt.Sprint("p", i), uses("shared")))
	}
	for i := range 5 {
		if p := await(t, c, fmt.Sprint("p", i), "bound", bound); p.Spec.NodeName != "b" {
			t.Errorf("pod %d is on %s, want b", i, p.Spec.NodeName)
		}
	}
	claim := getClaim(t, c, "shared")
	users := map[string]bool{}
	for _, r := range claim.Status.ReservedFor {
		users[r.Name] = true
	}
	if len(users) != 5 || len(claim.Status.ReservedFor) != 5 {
		t.Errorf("claim is reserved for %v, want 5 pods", claim.Status.ReservedFor)
	}
}

// TestFirstAvailable checks that the scheduler prefers the node on which a claim gets an earlier
// one of its alternative requests.
func TestFirstAvailable(t *testing.T) {
	c := withDevices(t)
	request := resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{
		{Name: "best", DeviceClassName: "large", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		{Name: "other", DeviceClassName: "small", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
	}}
	for i, want := range []string{"a", "b", "b"} {
		name := fmt.Sprint("c", i)
		addClaim(t, c, name, request)
		create(t, c, pod(name, uses(name)))
		if p := await(t, c, name, "bound", bound); p.Spec.NodeName != want {
			t.Errorf("pod %d is on %s, want %s", i, p.Spec.NodeName, want)
		}
	}
}

// TestClaimIsMade checks that a pod whose claim does not exist yet gets no condition, and is bound
// once the claim exists. It also checks the condition of a pod whose device class does not exist.
func TestClaimIsMade(t *testing.T) {
	c := withDevices(t)
	p := create(t, c, pod("p", func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x", ResourceClaimTemplateName: ptr.To("t")}}
	}))
	create(t, c, pod("after", nil)) // bound only after the scheduler has tried the first pod
	await(t, c, "after", "bound", bound)
	if p, err := c.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil ||
		len(p.Status.Conditions) != 0 {
		t.Fatalf("status before its claim exists: %+v, %v", p.Status, err)
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "made",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID,
				Controller: ptr.To(true)}}},
		Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("new", 1)}}},
	}
	if _, err := c.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "x", ResourceClaimName: ptr.To("made")}}
	if _, err := c.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "p", "condition about the missing class", refused("request r: device class new does not exist"))
	addClass(t, c, "new", "true")
	await(t, c, "p", "bound", bound)
}

// TestSelectorFails checks that a pod gets no node while its CEL selector cannot be evaluated for
// the devices of one node, even if another node has suitable devices.
func TestSelectorFails(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	addAccount(t, c)
	for _, name := range []string{"a", "b"} {
		addNode(t, c, name, nil)
	}
	addDevices(t, c, "a", "large")
	addDevices(t, c, "b", "small")
	addClass(t, c, "odd", `device.attributes["`+driver+`"][device.attributes["`+driver+
		`"].model == "small" ? "model" : "missing"] == "small"`)
	follow(t, c)
	addClaim(t, c, "one", exactly("odd", 1))
	create(t, c, pod("p", uses("one")))
	p := await(t, c, "p", "failed", func(p *v1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Reason == "SchedulerError" })
	})
	const want = `running "DynamicResources" filter plugin: class odd: selector #0 on device gpu.example.com/a/d0: ` +
		`CEL runtime error: no such key: missing`
	if got := p.Status.Conditions[0].Message; !strings.HasPrefix(got, want) || bound(p) {
		t.Errorf("on node %q, message %q, want %q", p.Spec.NodeName, got, want)
	}
	if err := c.ResourceV1().ResourceSlices().Delete(t.Context(), "devices-of-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := await(t, c, "p", "bound", bound); p.Spec.NodeName != "b" {
		t.Errorf("pod is on %s, want b", p.Spec.NodeName)
	}
}

// TestDevicesAreGivenOnce creates several pods at the same time, and checks that each device is
// allocated to one pod only.
func TestDevicesAreGivenOnce(t *testing.T) {
	c := setup(t)
	const nodes, perNode = 4, 5
	addClass(t, c, "any", "true")
	for i := range nodes {
		name := fmt.Sprint("n", i)
		addNode(t, c, name, nil)
		addDevices(t, c, name, "m", "m", "m", "m", "m")
	}
	for i := range nodes*perNode + 2 {
		name := fmt.Sprint("p", i)
		addClaim(t, c, name, exactly("any", 1))
		create(t, c, pod(name, uses(name)))
	}
	w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	given := map[string]string{}
	seen := map[string]bool{}
	for e := range w.ResultChan() {
		p, ok := e.Object.(*v1.Pod)
		if !ok || !bound(p) || seen[p.Name] {
			continue
		}
		seen[p.Name] = true
		r := getClaim(t, c, p.Name).Status.Allocation.Devices.Results[0]
		device := r.Pool + "/" + r.Device
		if other := given[device]; other != "" {
			t.Errorf("device %s is allocated to %s and %s", device, other, p.Name)
		}
		if given[device] = p.Name; r.Pool != p.Spec.NodeName {
			t.Errorf("pod %s is on %s with a device of %s", p.Name, p.Spec.NodeName, r.Pool)
		}
		if len(seen) == nodes*perNode {
			break
		}
	}
	for i := range nodes*perNode + 2 {
		if name := fmt.Sprint("p", i); !seen[name] {
			await(t, c, name, "refused", refused("4 cannot allocate all claims"))
		}
	}
}
