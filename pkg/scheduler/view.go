// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// view is the state of nodes and pods (cell.Cell), together with the other objects that plugins
// read.
type view struct {
	*cell.Cell
	keeper    *keeper
	nominated *nominations
	sources   *sources
	devices   *devices
	// evicting has the pods that the scheduler is evicting.
	evicting *evictions
	reserved reservations
	gangs    *gangs
}

var (
	_ scheduling.View       = (*view)(nil)
	_ scheduling.VolumeView = (*view)(nil)
)

// Repelled implements scheduling.View.
func (v *view) Repelled() bool { return v.nominated != nil && len(v.nominated.repelling) > 0 }

// Volumes implements scheduling.View.
func (v *view) Volumes() scheduling.VolumeView { return v }

// Devices implements scheduling.View.
func (v *view) Devices() scheduling.DeviceView { return v.devices }

// NamespaceLabels implements scheduling.View.
func (v *view) NamespaceLabels(namespace string) labels.Set {
	ns, err := v.sources.namespaces.Get(namespace)
	if err != nil {
		return nil // the cache does not have the namespace
	}
	return ns.Labels
}

// Selectors implements scheduling.View.
func (v *view) Selectors(pod *v1.Pod) labels.Selector {
	equal := labels.Set{}
	services, err := v.sources.services.Services(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil // List of a cache returns no error
	}
	for _, s := range services {
		if len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			for k, val := range s.Spec.Selector {
				equal[k] = val
			}
		}
	}
	var requirements labels.Requirements
	if owner := metav1.GetControllerOf(pod); owner != nil {
		requirements = v.ownerRequirements(pod.Namespace, owner, equal)
	}
	if len(equal) == 0 && len(requirements) == 0 {
		return nil
	}
	return labels.SelectorFromSet(equal).Add(requirements...)
}

// ownerRequirements returns the label requirements of a pod's controller. A ReplicationController's
// selector is a plain map of labels, which is added to equal instead.
func (v *view) ownerRequirements(namespace string, owner *metav1.OwnerReference, equal labels.Set) labels.Requirements {
	var sel *metav1.LabelSelector
	switch owner.APIVersion + " " + owner.Kind {
	case "v1 ReplicationController":
		if rc, err := v.sources.controllers.ReplicationControllers(namespace).Get(owner.Name); err == nil {
			for k, val := range rc.Spec.Selector {
				equal[k] = val
			}
		}
	case "apps/v1 ReplicaSet":
		if rs, err := v.sources.replicaSets.ReplicaSets(namespace).Get(owner.Name); err == nil {
			sel = rs.Spec.Selector
		}
	case "apps/v1 StatefulSet":
		if ss, err := v.sources.statefulSets.StatefulSets(namespace).Get(owner.Name); err == nil {
			sel = ss.Spec.Selector
		}
	}
	if sel == nil {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil // the API server rejects such a selector
	}
	requirements, _ := s.Requirements()
	return requirements
}

// Claim implements scheduling.VolumeView.
func (v *view) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	claim := found(v.sources.claims.PersistentVolumeClaims(namespace).Get(name))
	if claim == nil {
		return nil
	}
	return v.reserved.withNode(claim)
}

// Volume implements scheduling.VolumeView.
func (v *view) Volume(name string) *v1.PersistentVolume { return found(v.sources.volumes.Get(name)) }

// Class implements scheduling.VolumeView.
func (v *view) Class(name string) *storagev1.StorageClass { return found(v.sources.classes.Get(name)) }

// found returns the object of a cache's getter, or nil on an error. The only possible error is
// NotFound.
func found[T any](o *T, err error) *T {
	if err != nil {
		return nil
	}
	return o
}

// AvailableVolumes implements scheduling.VolumeView.
func (v *view) AvailableVolumes(class string) []*v1.PersistentVolume {
	all, err := v.sources.volumes.List(labels.Everything())
	if err != nil {
		return nil // List of a cache returns no error
	}
	var out []*v1.PersistentVolume
	for _, pv := range all {
		if volume.GetPersistentVolumeClass(pv) == class {
			out = append(out, v.reserved.volume(pv))
		}
	}
	return out
}

// Capacities implements scheduling.VolumeView.
func (v *view) Capacities(driver, class string) ([]*storagev1.CSIStorageCapacity, bool) {
	d := v.Driver(driver)
	if d == nil || d.Spec.StorageCapacity == nil || !*d.Spec.StorageCapacity {
		return nil, false
	}
	all, err := v.sources.capacities.List(labels.Everything())
	if err != nil {
		return nil, true // List of a cache returns no error
	}
	return slices.DeleteFunc(all, func(c *storagev1.CSIStorageCapacity) bool { return c.StorageClassName != class }), true
}

// Driver implements scheduling.VolumeView.
func (v *view) Driver(name string) *storagev1.CSIDriver { return found(v.sources.csiDrivers.Get(name)) }

// CSINode implements scheduling.VolumeView.
func (v *view) CSINode(node string) *storagev1.CSINode { return found(v.sources.csiNodes.Get(node)) }

// Attachments implements scheduling.VolumeView.
func (v *view) Attachments(node string) []*storagev1.VolumeAttachment {
	objs, err := v.sources.attachments.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil // cannot happen: the index exists since the handlers were registered
	}
	out := make([]*storagev1.VolumeAttachment, 0, len(objs))
	for _, o := range objs {
		if va, ok := o.(*storagev1.VolumeAttachment); ok {
			out = append(out, va)
		}
	}
	return out
}
