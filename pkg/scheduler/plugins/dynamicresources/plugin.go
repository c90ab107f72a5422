// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dynamicresources rejects nodes on which the devices for a pod's resource claims are not
// available, and plans which devices each claim gets on the chosen node. Kubernetes' own allocator
// (k8s.io/dynamic-resource-allocation/structured) finds the devices. The scheduler then writes the
// plan to the API server.
//
// A device class can provide an extended resource. On nodes whose status does not have the
// resource, the pod's request becomes a claim, which the scheduler creates before it binds the pod.
//
// If a CEL expression cannot be evaluated, or if the search takes too long, the attempt ends with
// an error, because getting no node is better than getting an unsuitable one.
package dynamicresources

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "DynamicResources"

// maxExpressions is how many compiled CEL expressions are cached.
const maxExpressions = 128

var (
	inUse       = unresolvable("resourceclaim in use")
	unavailable = unresolvable("resourceclaim not available on the node")
	notAll      = unresolvable("cannot allocate all claims")
)

func unresolvable(reason string) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{reason}}
}

// failed returns the status for an error, with the error's text as in Kubernetes.
func failed(err error) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Failed, Plugin: Name, Reasons: []string{err.Error()}}
}

// waiting returns the status for a claim that the pod cannot use yet, for example because the claim does
// not exist. The pod then waits until its claims change.
func waiting(err error) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Waiting, Plugin: Name, Reasons: []string{err.Error()}}
}

// features returns the allocator features that are enabled in Kubernetes 1.37.
func features() structured.Features {
	return structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		PartitionableDevices: true, PrioritizedList: true,
	}
}

// Plugin creates the filters and scorers for pods with claims.
type Plugin struct {
	timeout     time.Duration
	expressions *cel.Cache
}

// Events are the events after which a pod that this plugin rejected may fit.
const Events = scheduling.DevicesChanged | scheduling.NodeAdded | scheduling.NodeLabelsChanged |
	scheduling.NodeResourcesGrown

// New returns the plugin. timeout limits the search for devices in one attempt to schedule a pod,
// summed over all nodes.
func New(timeout time.Duration) *Plugin {
	return &Plugin{
		timeout:     timeout,
		expressions: cel.NewCache(maxExpressions, cel.Features{EnableConsumableCapacity: true}),
	}
}

// Compile returns the filter for a pod, or nil if the pod needs no devices. If it returns a Status,
// the pod is rejected on all nodes.
func (p *Plugin) Compile(view scheduling.View, pod *scheduling.Pod) (*Filter, *scheduling.Status) {
	if len(pod.Spec.ResourceClaims) == 0 && len(pod.Requests.Scalar) == 0 {
		return nil, nil
	}
	f := &Filter{pod: pod.Pod, devices: view.Devices()}
	claims, err := claimsOf(f.devices, pod.Pod)
	if err != nil {
		return nil, waiting(err)
	}
	for _, c := range claims {
		if st := f.add(c); st != nil {
			return nil, st
		}
	}
	if f.extended = extendedOf(f.devices, pod); f.extended != nil {
		f.stale = f.devices.MadeFor(pod.Pod)
	}
	if len(f.claims) == 0 && f.extended == nil {
		return nil, nil
	}
	if len(f.wanting) > 0 || f.extended != nil {
		ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
		context.AfterFunc(ctx, cancel)
		f.ctx = ctx
		f.allocator, err = structured.NewAllocator(ctx, features(), taken(f.devices.Allocated()),
			classes{f.devices}, f.devices.Slices(), p.expressions)
		if err != nil {
			return nil, failed(err)
		}
	}
	return f, nil
}

// claimsOf returns the claims of a pod. It returns an error that names the claim if a claim does
// not exist yet, is being deleted or is not for this pod.
func claimsOf(view scheduling.DeviceView, pod *v1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var out []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err // the error text is that of Kubernetes
		}
		if name == nil {
			continue // the pod needs no claim for this entry of spec.resourceClaims
		}
		claim := view.Claim(pod.Namespace, *name)
		switch {
		case claim == nil:
			return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaim"), *name)
		case claim.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resourceclaim %q is being deleted", claim.Name)
		}
		if owned {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return nil, err // the error text is that of Kubernetes
			}
		}
		if !slices.Contains(out, claim) {
			out = append(out, claim)
		}
	}
	return out, nil
}

// taken returns the devices, shares and capacities that are allocated to the claims.
func taken(claims []*resourcev1.ResourceClaim) structured.AllocatedState {
	out := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for _, c := range claims {
		for i := range c.Status.Allocation.Devices.Results {
			r := &c.Status.Allocation.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue // admin access does not reserve the device
			}
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				out.AllocatedDevices.Insert(id)
				continue
			}
			out.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			if r.ConsumedCapacity != nil {
				out.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			}
		}
	}
	return out
}

// classes lists device classes for Kubernetes' allocator.
type classes struct{ view scheduling.DeviceView }

// List implements structured.DeviceClassLister.
func (c classes) List() ([]*resourcev1.DeviceClass, error) { return c.view.Classes(), nil }

// Get implements structured.DeviceClassLister.
func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.view.Class(name); class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}
