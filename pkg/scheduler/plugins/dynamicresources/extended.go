// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamicresources

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/quantity"
	"keelson.dev/scheduling"
)

// Unmade is the name of a claim for extended resources before it is created. A real claim cannot
// have this name.
const Unmade = "<extended-resources>"

var staleClaim = unresolvable("cannot schedule extended resource claim")

// extended has the extended resources of a pod that device classes can provide. On a node whose
// status has such a resource, the node's device plugin provides it. On other nodes a resource claim
// provides it.
type extended struct {
	pod     *v1.Pod
	names   []v1.ResourceName // sorted
	classes map[v1.ResourceName]string
	made    map[string]*special // claims made so far, by the names of the resources in them
}

// special is a resource claim for the extended resources of a pod. It also says which of the
// claim's requests each container uses.
type special struct {
	*resourcev1.ResourceClaim
	mappings []v1.ContainerExtendedResourceRequest
}

// extendedOf returns the extended resources of a pod that device classes can provide. It returns
// nil if there are none.
func extendedOf(devices scheduling.DeviceView, pod *scheduling.Pod) *extended {
	e := &extended{pod: pod.Pod, classes: map[v1.ResourceName]string{}, made: map[string]*special{}}
	for name, n := range pod.Requests.Scalar {
		if n <= 0 {
			continue
		}
		if class := devices.ClassFor(name); class != nil {
			e.names = append(e.names, name)
			e.classes[name] = class.Name
		}
	}
	if len(e.names) == 0 {
		return nil
	}
	slices.Sort(e.names)
	return e
}

// on returns the claim for extended resources that the pod needs on a node, or nil if the node's
// device plugins provide all of them.
func (e *extended) on(n *scheduling.Node) *special {
	var key strings.Builder
	var names []v1.ResourceName
	for _, name := range e.names {
		if n.Allocatable.Scalar[name] <= 0 {
			names = append(names, name)
			fmt.Fprintln(&key, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s := e.made[key.String()]
	if s == nil {
		s = e.claim(names)
		e.made[key.String()] = s
	}
	return s
}

// claim returns a new claim for the given resources.
func (e *extended) claim(names []v1.ResourceName) *special {
	yes := true
	s := &special{ResourceClaim: &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		// A placeholder that differs from the UIDs of all other claims.
		Namespace: e.pod.Namespace, Name: Unmade, UID: types.UID(Unmade) + e.pod.UID, GenerateName: e.pod.Name +
			"-extended-resources-",
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: e.pod.Name,
			UID: e.pod.UID, Controller: &yes}},
	}}}
	for _, name := range names {
		s.add(e.pod, name, e.classes[name])
	}
	slices.SortFunc(s.Spec.Devices.Requests, func(a, b resourcev1.DeviceRequest) int {
		return strings.Compare(a.Name, b.Name)
	})
	return s
}

// add adds the claim's requests for a resource: one request for each container that runs as long as
// the pod. Init containers that end before other containers start use the devices of later
// containers. If they need more devices than that, they share one further request for the largest
// missing number.
func (s *special) add(pod *v1.Pod, name v1.ResourceName, class string) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	ends := func(i int) bool {
		p := containers[i].RestartPolicy
		return i < len(pod.Spec.InitContainers) && (p == nil || *p != v1.ContainerRestartPolicyAlways)
	}
	has := func(i int, request string) {
		s.mappings = append(s.mappings, v1.ContainerExtendedResourceRequest{ContainerName: containers[i].Name,
			ResourceName: string(name), RequestName: request})
	}
	lasting := make([]*resourcev1.DeviceRequest, len(containers))
	for i := range containers {
		if n := amount(&containers[i], name); n > 0 && !ends(i) {
			lasting[i] = request(i, &containers[i], name, class, n)
			s.Spec.Devices.Requests = append(s.Spec.Devices.Requests, *lasting[i])
			has(i, lasting[i].Name)
		}
	}
	var shared *resourcev1.DeviceRequest
	var sharing []int // indexes of the mappings of init containers that share the further request
	for i := range pod.Spec.InitContainers {
		if !ends(i) {
			continue
		}
		missing := amount(&containers[i], name)
		for _, r := range lasting[i:] {
			if r != nil && missing > 0 {
				has(i, r.Name)
				missing -= r.Exactly.Count
			}
		}
		if missing <= 0 {
			continue
		}
		if shared == nil || shared.Exactly.Count < missing {
			shared = request(i, &containers[i], name, class, missing)
		}
		sharing = append(sharing, len(s.mappings))
		has(i, "")
	}
	if shared == nil {
		return
	}
	s.Spec.Devices.Requests = append(s.Spec.Devices.Requests, *shared)
	for _, at := range sharing {
		s.mappings[at].RequestName = shared.Name
	}
}

func amount(c *v1.Container, name v1.ResourceName) int64 {
	q := c.Resources.Requests[name]
	return quantity.Value(q)
}

// request returns a container's request for a resource. Its name has the index of the container in
// the pod, and the index of the resource among the resources that the container requests.
func request(container int, c *v1.Container, name v1.ResourceName, class string,
	count int64) *resourcev1.DeviceRequest {
	at := 0
	for other := range c.Resources.Requests {
		if other < name {
			at++
		}
	}
	return &resourcev1.DeviceRequest{
		Name: fmt.Sprintf("container-%d-request-%d", container, at),
		Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
		},
	}
}
