// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamicresources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"keelson.dev/scheduling"
)

// Filter filters nodes for a pod that has resource claims, or extended resources that device
// classes provide.
type Filter struct {
	pod       *v1.Pod
	devices   scheduling.DeviceView
	claims    []claim
	wanting   []*resourcev1.ResourceClaim // the claims that have no devices allocated
	allocator structured.Allocator
	ctx       context.Context // ends the search for devices after the plugin's timeout
	idle      *resourcev1.ResourceClaim
	extended  *extended // nil if device classes provide no extended resource of the pod
	stale     *resourcev1.ResourceClaim
}

// claim is a resource claim of the pod.
type claim struct {
	*resourcev1.ResourceClaim
	nodes *nodeaffinity.NodeSelector // nodes where the claim's devices can be used; nil means all nodes
}

func (f *Filter) add(c *resourcev1.ResourceClaim) *scheduling.Status {
	out := claim{ResourceClaim: c}
	switch allocation := c.Status.Allocation; {
	case allocation != nil:
		if !resourceclaim.CanBeReserved(c) && !resourceclaim.IsReservedForPod(f.pod, c, false) {
			return inUse
		}
		if allocation.NodeSelector != nil {
			nodes, err := nodeaffinity.NewNodeSelector(allocation.NodeSelector)
			if err != nil {
				return failed(err)
			}
			out.nodes = nodes
		}
	case f.devices.Pending(c.UID):
		return unresolvable(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", c.Namespace, c.Name))
	default:
		if st := f.known(c); st != nil {
			return st
		}
		f.wanting = append(f.wanting, c)
	}
	f.claims = append(f.claims, out)
	return nil
}

// known returns a status that rejects the pod if the claim names a device class that does not
// exist, and otherwise nil.
func (f *Filter) known(c *resourcev1.ResourceClaim) *scheduling.Status {
	missing := func(request, class string) *scheduling.Status {
		if f.devices.Class(class) != nil {
			return nil
		}
		return unresolvable(fmt.Sprintf("request %s: device class %s does not exist", request, class))
	}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if r.Exactly == nil && len(r.FirstAvailable) == 0 {
			return unresolvable(fmt.Sprintf("resource claim %s/%s, request %s: unknown request type",
				c.Namespace, c.Name, r.Name))
		}
		if r.Exactly != nil {
			if st := missing(r.Name, r.Exactly.DeviceClassName); st != nil {
				return st
			}
		}
		for j := range r.FirstAvailable {
			if st := missing(r.Name+"/"+r.FirstAvailable[j].Name, r.FirstAvailable[j].DeviceClassName); st != nil {
				return st
			}
		}
	}
	return nil
}

// Check returns the status with which a node is rejected, or nil if devices are available for it.
func (f *Filter) Check(n *scheduling.Node) *scheduling.Status {
	if f.stale != nil {
		return staleClaim
	}
	for i := range f.claims {
		c := &f.claims[i]
		if c.nodes == nil || c.nodes.Match(n.Node) {
			continue
		}
		if r := c.Status.ReservedFor; len(r) == 0 || len(r) == 1 && r[0].UID == f.pod.UID {
			f.idle = c.ResourceClaim
		}
		return unavailable
	}
	_, st := f.allocate(n)
	return st
}

// Idle returns a claim whose devices could be released to help the pod, or nil. No other pod uses
// the claim, and its allocation kept the pod from fitting a node.
func (f *Filter) Idle() *resourcev1.ResourceClaim { return f.idle }

// Stale returns the claim for the pod's extended resources that a failed attempt left behind, or
// nil. While that claim exists, the pod fits no node.
func (f *Filter) Stale() *resourcev1.ResourceClaim { return f.stale }

// special returns the claim for extended resources that the pod needs on a node, or nil if it needs
// none.
func (f *Filter) special(n *scheduling.Node) *special {
	if f.extended == nil {
		return nil
	}
	return f.extended.on(n)
}

func (f *Filter) allocate(n *scheduling.Node) ([]resourcev1.AllocationResult, *scheduling.Status) {
	wanting := f.wanting
	if s := f.special(n); s != nil {
		wanting = append(slices.Clip(wanting), s.ResourceClaim)
	}
	if len(wanting) == 0 {
		return nil, nil
	}
	got, err := f.allocator.Allocate(f.ctx, n.Node, wanting)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, failed(fmt.Errorf("node %s: timed out trying to allocate devices", n.Name))
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, unresolvable(err.Error())
	case err != nil: // an error in a claim or class: better no node than an unsuitable one
		return nil, failed(err)
	case len(got) != len(wanting):
		return nil, notAll
	}
	return got, nil
}

// Plan has the claims that must be written before a pod is bound to a node.
type Plan []Use

// Use is a claim that the pod uses, with the values to write to it.
type Use struct {
	Claim *resourcev1.ResourceClaim
	// Allocation is the allocation to write to the claim, or nil if the claim already has one.
	Allocation *resourcev1.AllocationResult
	// Extended is set if the claim is to be created for extended resources. It has the claim's
	// requests by container.
	Extended []v1.ContainerExtendedResourceRequest
}

// Plan chooses devices on a node that Check accepted.
func (f *Filter) Plan(n *scheduling.Node) (Plan, *scheduling.Status) {
	got, st := f.allocate(n)
	if st != nil {
		return nil, st
	}
	var out Plan
	for i := range f.claims {
		u := Use{Claim: f.claims[i].ResourceClaim}
		if u.Claim.Status.Allocation == nil {
			u.Allocation, got = &got[0], got[1:]
		}
		out = append(out, u)
	}
	if s := f.special(n); s != nil {
		out = append(out, Use{s.ResourceClaim, &got[0], s.mappings})
	}
	return out, nil
}

// CompileScore returns a scorer for the pod. Claims can list alternative requests in order of
// preference; the scorer prefers nodes that satisfy earlier alternatives. It is the zero Scorer if
// the pod's claims have no alternatives.
func (p *Plugin) CompileScore(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	if len(pod.Spec.ResourceClaims) == 0 {
		return scheduling.Scorer{}
	}
	f, st := p.Compile(view, pod)
	if st != nil || f == nil {
		return scheduling.Scorer{}
	}
	for i := range f.claims {
		for _, r := range f.claims[i].Spec.Devices.Requests {
			if len(r.FirstAvailable) > 0 {
				return scheduling.Scorer{Score: f.score, Normalization: scheduling.ByMax}
			}
		}
	}
	return scheduling.Scorer{}
}

func (f *Filter) score(n *scheduling.Node) int64 {
	plan, st := f.Plan(n)
	if st != nil {
		return 0
	}
	var total int64
	for _, u := range plan {
		allocation := u.Allocation
		if allocation == nil {
			allocation = u.Claim.Status.Allocation
		}
		got := map[string]bool{}
		for i := range allocation.Devices.Results {
			got[allocation.Devices.Results[i].Request] = true
		}
		for _, r := range u.Claim.Spec.Devices.Requests {
			for i := range r.FirstAvailable {
				if got[resourceclaim.CreateSubRequestRef(r.Name, r.FirstAvailable[i].Name)] {
					total += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
				}
			}
		}
	}
	return total
}
