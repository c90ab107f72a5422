// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumebinding rejects nodes that cannot access a pod's volumes, or for which the volumes
// cannot be provisioned. For claims with the binding mode WaitForFirstConsumer, it plans which
// volume each claim gets on the chosen node. The scheduler carries out the plan.
package volumebinding

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "VolumeBinding"

var (
	affinityConflict = unresolvable("node(s) didn't match PersistentVolume's node affinity")
	volumeMissing    = unresolvable("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
	notEnough        = unresolvable("node(s) did not have enough free storage")
	nothingToBind    = unresolvable("node(s) didn't find available persistent volumes to bind")
)

func unresolvable(reason string) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{reason}}
}

// Events are the events after which a pod that this plugin rejected may fit.
const Events = scheduling.VolumesChanged | scheduling.NodeAdded | scheduling.NodeLabelsChanged

// Compile returns the filter for a pod, or nil if the pod has no claims. If it returns a Status,
// the pod is rejected on all nodes.
func Compile(view scheduling.View, pod *scheduling.Pod) (*Filter, *scheduling.Status) {
	f := &Filter{view: view.Volumes()}
	for i := range pod.Spec.Volumes {
		if st := f.add(pod.Pod, &pod.Spec.Volumes[i]); st != nil {
			return nil, st
		}
	}
	if len(f.bound) == 0 && len(f.waiting) == 0 {
		return nil, nil
	}
	// Start with the smallest claim, so that each claim gets the smallest volume that is large
	// enough.
	slices.SortStableFunc(f.waiting, func(a, b *v1.PersistentVolumeClaim) int {
		qa, qb := a.Spec.Resources.Requests[v1.ResourceStorage], b.Spec.Resources.Requests[v1.ResourceStorage]
		return qa.Cmp(qb)
	})
	return f, nil
}

// Filter filters nodes for a pod with claims.
type Filter struct {
	view    scheduling.VolumeView
	bound   []*v1.PersistentVolumeClaim
	waiting []*v1.PersistentVolumeClaim // unbound claims with the binding mode WaitForFirstConsumer
}

func (f *Filter) add(pod *v1.Pod, vol *v1.Volume) *scheduling.Status {
	var name string
	switch {
	case vol.PersistentVolumeClaim != nil:
		name = vol.PersistentVolumeClaim.ClaimName
	case vol.Ephemeral != nil:
		name = pod.Name + "-" + vol.Name
	default:
		return nil
	}
	claim := f.view.Claim(pod.Namespace, name)
	if claim != nil && vol.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return unresolvable(err.Error())
		}
	}
	if claim != nil && slices.ContainsFunc(slices.Concat(f.bound, f.waiting),
		func(c *v1.PersistentVolumeClaim) bool { return c.UID == claim.UID }) {
		return nil // another volume of the pod uses the same claim, which is listed already
	}
	switch {
	case claim == nil && vol.Ephemeral != nil:
		return unresolvable(
			fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name))
	case claim == nil:
		return unresolvable(fmt.Sprintf("persistentvolumeclaim %q not found", name))
	case claim.Status.Phase == v1.ClaimLost:
		return unresolvable(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q",
			name, claim.Spec.VolumeName))
	case claim.DeletionTimestamp != nil:
		return unresolvable(fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
	case Bound(claim):
		f.bound = append(f.bound, claim)
	case claim.Spec.VolumeName == "" && f.waits(claim):
		f.waiting = append(f.waiting, claim)
	default:
		return unresolvable("pod has unbound immediate PersistentVolumeClaims")
	}
	return nil
}

// Bound reports whether the volume controller has completely bound a claim to its volume.
func Bound(claim *v1.PersistentVolumeClaim) bool {
	_, completed := claim.Annotations[volume.AnnBindCompleted]
	return claim.Spec.VolumeName != "" && completed
}

func (f *Filter) waits(claim *v1.PersistentVolumeClaim) bool {
	class := f.view.Class(volume.GetPersistentVolumeClaimClass(claim))
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Check returns the status with which a node is rejected, or nil if the pod's volumes are or can be
// made available there.
func (f *Filter) Check(n *scheduling.Node) *scheduling.Status {
	for _, claim := range f.bound {
		pv := f.view.Volume(claim.Spec.VolumeName)
		if pv == nil {
			return volumeMissing
		}
		if volume.CheckNodeAffinity(pv, n.Labels) != nil {
			return affinityConflict
		}
	}
	_, st := f.plan(n)
	return st
}

// Plan has the volumes to bind or provision before a pod is bound to a node.
type Plan struct {
	// Bind has the claims to bind to an existing volume.
	Bind []Match
	// Provision has the claims for which a new volume is to be provisioned on the node.
	Provision []*v1.PersistentVolumeClaim
	// Capacities has for each claim in Provision the capacity that is large enough for it, or nil
	// if the driver publishes none.
	Capacities []*storagev1.CSIStorageCapacity
}

// Match is a claim with the volume chosen for it.
type Match struct {
	Claim  *v1.PersistentVolumeClaim
	Volume *v1.PersistentVolume
}

// Plan returns the plan for a node that Check accepted.
func (f *Filter) Plan(n *scheduling.Node) Plan {
	p, _ := f.plan(n)
	return p
}

func (f *Filter) plan(n *scheduling.Node) (Plan, *scheduling.Status) {
	var p Plan
	taken := map[string]*v1.PersistentVolume{}
	for _, claim := range f.waiting {
		selected, ok := claim.Annotations[volume.AnnSelectedNode]
		if ok && selected != n.Name {
			return Plan{}, nothingToBind // the claim's volume is already being provisioned for another node
		}
		class := f.view.Class(volume.GetPersistentVolumeClaimClass(claim))
		if class == nil {
			return Plan{}, nothingToBind
		}
		if !ok {
			if pv := f.match(claim, n, taken); pv != nil {
				taken[pv.Name] = pv
				p.Bind = append(p.Bind, Match{claim, pv})
				continue
			}
		}
		if class.Provisioner == volume.NotSupportedProvisioner || !topologyAllows(class.AllowedTopologies, n) {
			return Plan{}, nothingToBind
		}
		capacity, ok := f.fits(claim, class, n)
		if !ok {
			return Plan{}, notEnough
		}
		p.Provision = append(p.Provision, claim)
		p.Capacities = append(p.Capacities, capacity)
	}
	return p, nil
}

// fits reports whether the driver of the class has enough capacity to provision a volume for the
// claim that the node can access, and returns that capacity. It returns nil and true if the driver
// does not publish its capacity.
func (f *Filter) fits(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass,
	n *scheduling.Node) (*storagev1.CSIStorageCapacity, bool) {
	size, asks := claim.Spec.Resources.Requests[v1.ResourceStorage]
	published, limited := f.view.Capacities(class.Provisioner, class.Name)
	if !asks || !limited {
		return nil, true
	}
	for _, c := range published {
		most := c.Capacity
		if c.MaximumVolumeSize != nil {
			most = c.MaximumVolumeSize
		}
		if most != nil && most.Cmp(size) >= 0 && reaches(c, n) {
			return c, true
		}
	}
	return nil, false
}

// reaches reports whether a node can access the storage that a CSIStorageCapacity describes. A
// selector that does not parse selects no node.
func reaches(c *storagev1.CSIStorageCapacity, n *scheduling.Node) bool {
	if c.NodeTopology == nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	return err == nil && s.Matches(labels.Set(n.Labels))
}

// match returns the smallest volume that suits the claim, is accessible from the node and is not
// taken by another claim of the pod. It returns nil if there is none. A selector that does not parse
// selects no volume.
func (f *Filter) match(claim *v1.PersistentVolumeClaim, n *scheduling.Node,
	taken map[string]*v1.PersistentVolume) *v1.PersistentVolume {
	available := f.view.AvailableVolumes(volume.GetPersistentVolumeClaimClass(claim))
	pv, err := volume.FindMatchingVolume(claim, available, n.Node, taken, false, true)
	if err != nil {
		return nil
	}
	return pv
}

func topologyAllows(terms []v1.TopologySelectorTerm, n *scheduling.Node) bool {
	for _, term := range terms {
		if termAllows(term, n) {
			return true
		}
	}
	return len(terms) == 0
}

func termAllows(term v1.TopologySelectorTerm, n *scheduling.Node) bool {
	for _, req := range term.MatchLabelExpressions {
		value, ok := n.Labels[req.Key]
		if !ok || !slices.Contains(req.Values, value) {
			return false
		}
	}
	return true
}
