// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

const deviceDriver = "d.example.com"

// device is a device of a node, in the form that the reference uses.
type device struct {
	node, name, model string // model is "" if the device has no such attribute
	large, used       bool
}

// classesOf has the device classes. Each has a CEL expression for the API, and the same condition
// in Go for the reference.
var classesOf = map[string]struct {
	expression string
	holds      func(device) bool
}{
	"any":   {"true", func(device) bool { return true }},
	"large": {`device.attributes["` + deviceDriver + `"].large`, func(d device) bool { return d.large }},
	"x": {`"model" in device.attributes["` + deviceDriver + `"] && device.attributes["` + deviceDriver + `"].model == "x"`,
		func(d device) bool { return d.model == "x" }},
}

// ask is one alternative of a request in a ResourceClaim: a number of free devices of a
// DeviceClass, or all devices of the class.
type ask struct {
	class string
	count int // number of devices; 0 means all
}

// TestDevices draws pods with random claims, and compares the nodes that the scheduler finds with
// the result of an exhaustive search for devices.
func TestDevices(t *testing.T) {
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fits, total := 0, 0
	for seed := range uint64(*cells) {
		r := rand.New(rand.NewPCG(uint64(*from)+seed, 11))
		some, of, err := compareDevices(set.Profiles[v1.DefaultSchedulerName], r)
		if err != nil {
			t.Fatalf("seed %d: %v", uint64(*from)+seed, err)
		}
		fits, total = fits+some, total+of
	}
	if fits*20 < total || fits*20 > total*19 {
		t.Errorf("%d of %d pairs of pods and nodes fit: too few or too many for a useful test", fits, total)
	}
}

func compareDevices(p *profile.Profile, r *rand.Rand) (fits, total int, err error) {
	m, err := scheduler.NewModel(p, r)
	if err != nil {
		return 0, 0, err
	}
	all, err := drawDevices(m, r)
	if err != nil {
		return 0, 0, err
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "p"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	var claims [][][]ask // by claim, request and alternative
	var same []bool      // for each claim, whether all its devices must be of one model
	for i := range 1 + r.IntN(2) {
		claim, asks, equal := drawClaim(r, fmt.Sprint("c", i))
		if err := m.Set(claim); err != nil {
			return 0, 0, err
		}
		claims, same = append(claims, asks), append(same, equal)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
			v1.PodResourceClaim{Name: claim.Name, ResourceClaimName: &claim.Name})
	}
	also, err := drawExtended(m, r, pod)
	if err != nil {
		return 0, 0, err
	}
	got, err := m.Explain(pod)
	if err != nil {
		return 0, 0, err
	}
	if got.Rejected != nil {
		if !contradictory(all, claims, same) {
			return 0, 0, fmt.Errorf("rejected: %v", got.Rejected)
		}
		return 0, 0, nil
	}
	for _, n := range got.Nodes {
		var here []device
		for _, d := range all {
			if d.node == n.Node {
				here = append(here, d)
			}
		}
		want := also.satisfiable(n.Node, here, claims, same)
		if want != (n.Objection == nil) {
			return 0, 0, fmt.Errorf("node %s with %+v for %v (one model: %v) and %+v: fits %v, want %v (%v)",
				n.Node, here, claims, same, also, n.Objection == nil, want, n.Objection)
		}
		if total++; want {
			fits++
		}
	}
	return fits, total, nil
}

func room() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("10")}
}

func classNamed(name string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{
		{CEL: &resourcev1.CELDeviceSelector{Expression: classesOf[name].expression}}}
	return class
}

// drawDevices adds nodes with devices to the model. Claims of other pods use some of the devices.
func drawDevices(m *scheduler.Model, r *rand.Rand) ([]device, error) {
	var all []device
	for name := range classesOf {
		if err := m.Set(classNamed(name)); err != nil {
			return nil, err
		}
	}
	for i := range 3 {
		node := fmt.Sprint("n", i)
		if err := m.Set(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: v1.NodeStatus{Allocatable: room()}}); err != nil {
			return nil, err
		}
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
			Driver: deviceDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1,
				ResourceSliceCount: 1},
		}}
		for j := range r.IntN(5) {
			d := device{node: node, name: fmt.Sprint("d", j), model: []string{"", "x", "y"}[r.IntN(3)],
				large: r.IntN(2) == 0, used: r.IntN(4) == 0}
			attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"large": {BoolValue: &d.large}}
			if d.model != "" {
				attributes["model"] = resourcev1.DeviceAttribute{StringValue: &d.model}
			}
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: d.name, Attributes: attributes})
			all = append(all, d)
			if d.used {
				if err := m.Set(usedClaim(d)); err != nil {
					return nil, err
				}
			}
		}
		if err := m.Set(s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func usedClaim(d device) *resourcev1.ResourceClaim {
	name := "used-" + d.node + d.name
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "other", UID: types.UID(name)},
		Status: resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{
					{Request: "r", Driver: deviceDriver, Pool: d.node, Device: d.name}},
			}}},
	}
}

func drawClaim(r *rand.Rand, name string) (claim *resourcev1.ResourceClaim, asks [][]ask, same bool) {
	claim = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}}
	d := &claim.Spec.Devices
	if same = r.IntN(3) == 0; same {
		d.Constraints = []resourcev1.DeviceConstraint{
			{MatchAttribute: ptr(resourcev1.FullyQualifiedName(deviceDriver + "/model"))}}
	}
	for i := range 1 + r.IntN(2) {
		q := resourcev1.DeviceRequest{Name: fmt.Sprint("r", i)}
		var ways []ask
		for range []int{1, 1, 2}[r.IntN(3)] {
			ways = append(ways, ask{[]string{"any", "large", "x"}[r.IntN(3)], []int{0, 1, 1, 2}[r.IntN(4)]})
		}
		if len(ways) > 1 && same {
			// If the devices of one alternative cannot all be of one model, the allocator rejects
			// the node without trying the next alternative. Drawing a number instead of "all"
			// avoids this case.
			for j := range ways {
				ways[j].count = max(ways[j].count, 1)
			}
		}
		if len(ways) == 1 {
			mode, count := modeOf(ways[0])
			q.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: ways[0].class, AllocationMode: mode, Count: count}
		} else {
			for j, w := range ways {
				mode, count := modeOf(w)
				q.FirstAvailable = append(q.FirstAvailable,
					resourcev1.DeviceSubRequest{Name: fmt.Sprint("s", j), DeviceClassName: w.class,
						AllocationMode: mode, Count: count})
			}
		}
		d.Requests, asks = append(d.Requests, q), append(asks, ways)
	}
	return claim, asks, same
}

// contradictory reports whether a claim requests all devices of a DeviceClass and requires that
// they are of one model, while on some node the matching devices are of different models. As in
// Kubernetes, the pod then fits no node.
func contradictory(all []device, claims [][][]ask, same []bool) bool {
	for i, requests := range claims {
		asks := slices.Concat(requests...)
		if !same[i] || !slices.ContainsFunc(asks, func(a ask) bool { return a.count == 0 }) {
			continue
		}
		models := map[string]string{} // models of the matching devices, by node
		for _, d := range all {
			if !slices.ContainsFunc(asks, func(a ask) bool { return classesOf[a.class].holds(d) }) {
				continue
			}
			if model, known := models[d.node]; d.model == "" || known && model != d.model {
				return true
			}
			models[d.node] = d.model
		}
	}
	return false
}

func modeOf(a ask) (resourcev1.DeviceAllocationMode, int64) {
	if a.count == 0 {
		return resourcev1.DeviceAllocationModeAll, 0
	}
	return resourcev1.DeviceAllocationModeExactCount, int64(a.count)
}

// satisfiable reports whether the devices of a node can satisfy all claims. It tries all choices of
// alternatives and devices.
func satisfiable(here []device, claims [][][]ask, same []bool) bool {
	type need struct {
		claim int
		ask
	}
	var choose func(claim, request int, needs []need) bool
	var give func(needs []need, taken []string, models map[int]string) bool
	give = func(needs []need, taken []string, models map[int]string) bool {
		if len(needs) == 0 {
			return true
		}
		n := needs[0]
		var fitting []device
		for _, d := range here {
			if classesOf[n.class].holds(d) {
				fitting = append(fitting, d)
			}
		}
		count := n.count
		if count == 0 {
			if count = len(fitting); count == 0 {
				return false
			}
		}
		for set := range 1 << len(fitting) {
			var picked []string
			model, ok := models[n.claim], true
			for i, d := range fitting {
				if set&(1<<i) == 0 {
					continue
				}
				picked = append(picked, d.name)
				ok = ok && !d.used && !slices.Contains(taken, d.name)
				if same[n.claim] {
					ok = ok && d.model != "" && (model == "" || model == d.model)
					model = d.model
				}
			}
			if !ok || len(picked) != count {
				continue
			}
			next := map[int]string{}
			for k, v := range models {
				next[k] = v
			}
			next[n.claim] = model
			if give(needs[1:], slices.Concat(taken, picked), next) {
				return true
			}
		}
		return false
	}
	choose = func(claim, request int, needs []need) bool {
		switch {
		case claim == len(claims):
			return give(needs, nil, map[int]string{})
		case request == len(claims[claim]):
			return choose(claim+1, 0, needs)
		}
		return slices.ContainsFunc(claims[claim][request], func(a ask) bool {
			return choose(claim, request+1, append(slices.Clip(needs), need{claim, a}))
		})
	}
	return choose(0, 0, nil)
}

// TestAdminAccess checks that a claim with admin access can get a device that another claim uses,
// and that the device stays available to other claims.
func TestAdminAccess(t *testing.T) {
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := scheduler.NewModel(set.Profiles[v1.DefaultSchedulerName], rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	d := device{node: "n", name: "d"}
	looking := usedClaim(device{node: "n", name: "free"})
	looking.Status.Allocation.Devices.Results[0].AdminAccess = ptr(true)
	for _, o := range []runtime.Object{
		&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Allocatable: room()}},
		&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: deviceDriver, NodeName: ptr("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1,
				ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "d"}, {Name: "free"}},
		}},
		usedClaim(d), looking,
	} {
		if err := m.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		count int64
		admin bool
		fits  bool
	}{"one": {1, false, true}, "two": {2, false, false}, "look": {2, true, true}, "look at three": {3, true, false}} {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: types.UID(name)}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "any", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: c.count,
			AdminAccess: &c.admin,
		}}}
		if err := m.Set(claim); err != nil {
			t.Fatal(err)
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(name, " ", "-"), Namespace: "ns",
			UID: types.UID(name)}}
		pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: ptr("c")}}
		got, err := m.Explain(pod)
		if err != nil {
			t.Fatal(err)
		}
		if got.Nodes[0].Objection == nil != c.fits {
			t.Errorf("%s: %+v, want fits %v", name, got.Nodes[0].Objection, c.fits)
		}
	}
}
