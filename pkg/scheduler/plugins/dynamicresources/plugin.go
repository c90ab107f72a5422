// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dynamicresources rejects nodes on which the devices for a pod's resource claims are not
// available, and plans which devices each claim gets on the chosen node. Kubernetes' own allocator
// (k8s.io/dynamic-resource-allocation/structured) finds the devices. The scheduler carries out the
// plan.
//
// A device class can provide an extended resource. On nodes that do not have the resource
// themselves, the pod's request becomes a claim, which is created when the pod is bound.
//
// If an expression cannot be evaluated, or if the search takes too long, the attempt ends with an
// error, because it is better to get no node than an unsuitable one.
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

// maxExpressions is how many compiled expressions are kept.
const maxExpressions = 128

var (
	inUse       = unresolvable("resourceclaim in use")
	unavailable = unresolvable("resourceclaim not available on the node")
	notAll      = unresolvable("cannot allocate all claims")
)

func unresolvable(reason string) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{reason}}
}

// failed returns the status for an error, as in Kubernetes.
func failed(err error) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Failed, Plugin: Name, Reasons: []string{err.Error()}}
}

// waiting returns the status for a claim that has yet to be created for the pod.
func waiting(err error) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Waiting, Plugin: Name, Reasons: []string{err.Error()}}
}

// features returns the features that are enabled in Kubernetes 1.36.
func features() structured.Features {
	return structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		PartitionableDevices: true, PrioritizedList: true,
	}
}

// Plugin compiles filters and scorers of pods with claims.
type Plugin struct {
	timeout     time.Duration
	expressions *cel.Cache
}

// Events are the changes that can make a pod fit that the plugin rejected.
const Events = scheduling.DevicesChanged | scheduling.NodeAdded | scheduling.NodeLabelsChanged |
	scheduling.NodeResourcesGrown

// New returns the plugin. timeout limits the search for devices of one attempt, over all nodes.
func New(timeout time.Duration) *Plugin {
	return &Plugin{
		timeout:     timeout,
		expressions: cel.NewCache(maxExpressions, cel.Features{EnableConsumableCapacity: true}),
	}
}

// Compile returns the filter of a pod, or nil if the pod needs no devices. A Status rejects the pod
// on all nodes.
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

// claimsOf returns a pod's claims. The error names a claim that does not exist yet.
func claimsOf(view scheduling.DeviceView, pod *v1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var out []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err // the error text is that of Kubernetes
		}
		if name == nil {
			continue // the pod needs no claim for this reference
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

// taken returns the devices, shares and capacities that are allocated to claims.
func taken(claims []*resourcev1.ResourceClaim) structured.AllocatedState {
	out := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for _, c := range claims {
		for i := range c.Status.Allocation.Devices.Results {
			r := &c.Status.Allocation.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue // a claim with admin access does not allocate the device
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

// classes gives the allocator access to device classes.
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
