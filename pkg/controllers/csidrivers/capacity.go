// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Labels of a CSIStorageCapacity, with the names that Kubernetes' external-provisioner uses: the
// controller that manages the object, and the driver.
const (
	managedBy  = "csi.storage.k8s.io/managed-by"
	driverName = "csi.storage.k8s.io/drivername"
)

// room identifies a CSIStorageCapacity object, which holds a driver's capacity for volumes of one
// StorageClass that are accessible from nodes with certain labels (segments).
type room struct {
	class    *storagev1.StorageClass
	segments map[string]string
	// node is the node on which to ask the driver for its capacity, or nil if none of the nodes
	// with these labels is ready.
	node *v1.Node
}

// name returns the name of the CSIStorageCapacity object. It is derived from the driver, class and
// labels, so it is the same after a restart.
func (r room) name(driver string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", driver, r.class.Name)
	for _, k := range slices.Sorted(maps.Keys(r.segments)) {
		fmt.Fprintf(h, " %q=%q", k, r.segments[k])
	}
	return fmt.Sprintf("csisc-%x", h.Sum(nil)[:16])
}

// syncCapacity publishes the capacity of a driver as CSIStorageCapacity objects, if its CSIDriver
// object has storageCapacity set. It deletes objects that are no longer needed.
func (c *Controller) syncCapacity(ctx context.Context, driver string) error {
	have, err := c.capacities.List(labels.SelectorFromSet(labels.Set{managedBy: Name, driverName: driver}))
	if err != nil {
		return fmt.Errorf("capacities: %w", err)
	}
	want, err := c.rooms(driver)
	if err != nil {
		return err
	}
	old := map[string]*storagev1.CSIStorageCapacity{}
	var errs []error
	for _, o := range have {
		if _, ok := want[o.Name]; ok {
			old[o.Name] = o
			continue
		}
		if err := c.Client.StorageV1().CSIStorageCapacities(o.Namespace).Delete(ctx, o.Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete capacity: %w", err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if want[name].node == nil {
			continue // keep the last published capacity, because no node is ready
		}
		errs = append(errs, c.publish(ctx, driver, want[name], old[name]))
	}
	return errors.Join(errs...)
}

// rooms returns the capacities to publish for a driver, by object name: one for each StorageClass
// with delayed binding and each combination of the nodes' topology labels.
func (c *Controller) rooms(driver string) (map[string]room, error) {
	object, err := c.objects.Get(driver)
	if apierrors.IsNotFound(err) || err == nil &&
		(object.Labels[Label] != Kubelet || object.Spec.StorageCapacity == nil || !*object.Spec.StorageCapacity) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("classes: %w", err)
	}
	classes = slices.DeleteFunc(classes, func(s *storagev1.StorageClass) bool {
		return s.Provisioner != driver || s.VolumeBindingMode == nil ||
			*s.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer
	})
	nodes, err := c.csiNodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("nodes of driver: %w", err)
	}
	slices.SortFunc(nodes, func(a, b *storagev1.CSINode) int { return strings.Compare(a.Name, b.Name) })
	out := map[string]room{}
	for _, n := range nodes {
		d := registered(n, driver)
		node, err := c.nodes.Get(n.Name)
		if d == nil || err != nil {
			continue
		}
		for _, class := range classes {
			r := room{class: class, segments: segments(d, node)}
			name := r.name(driver)
			if r.node = out[name].node; r.node == nil && ready(node) {
				r.node = node
			}
			out[name] = r
		}
	}
	return out, nil
}

// publish asks a driver for its capacity and writes it to the CSIStorageCapacity object, which is
// old or, if old is nil, a new one.
func (c *Controller) publish(ctx context.Context, driver string, r room, old *storagev1.CSIStorageCapacity) error {
	req, got := &csi.GetCapacityRequest{}, &csi.GetCapacityResponse{}
	var err error
	if req.Parameters, err = parameters(r.class); err != nil {
		return nil // the driver cannot create volumes of this class, so it has no capacity for it
	}
	if len(r.segments) > 0 {
		req.AccessibleTopology = &csi.Topology{Segments: r.segments}
	}
	err = c.callController(ctx, r.node.Name, driver, "GetCapacity", req, got)
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil {
		return fmt.Errorf("capacity of driver %s on %s: %w", driver, r.node.Name, err)
	}
	object, err := c.objects.Get(driver)
	if err != nil {
		return fmt.Errorf("driver: %w", err)
	}
	next := newCapacity(object, r, got)
	client := c.Client.StorageV1().CSIStorageCapacities(next.Namespace)
	switch {
	case old == nil:
		// If the object exists already, its event queues the driver again.
		if _, err = client.Create(ctx, next, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return nil
		}
	case equality.Semantic.DeepEqual(old.Capacity, next.Capacity) &&
		equality.Semantic.DeepEqual(old.MaximumVolumeSize, next.MaximumVolumeSize):
		return nil
	default:
		changed := old.DeepCopy()
		changed.Capacity, changed.MaximumVolumeSize = next.Capacity, next.MaximumVolumeSize
		_, err = client.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("capacity: %w", err)
	}
	return nil
}

// newCapacity returns the CSIStorageCapacity object for the driver's response got.
func newCapacity(driver *storagev1.CSIDriver, r room, got *csi.GetCapacityResponse) *storagev1.CSIStorageCapacity {
	out := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: r.name(driver.Name),
			Labels: map[string]string{managedBy: Name, driverName: driver.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver",
				Name: driver.Name, UID: driver.UID}},
		},
		NodeTopology:     &metav1.LabelSelector{MatchLabels: r.segments},
		StorageClassName: r.class.Name,
		Capacity:         resource.NewQuantity(got.GetAvailableCapacity(), resource.BinarySI),
	}
	if most := got.GetMaximumVolumeSize(); most != nil {
		out.MaximumVolumeSize = resource.NewQuantity(most.GetValue(), resource.BinarySI)
	}
	return out
}
