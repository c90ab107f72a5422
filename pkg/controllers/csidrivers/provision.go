// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/controllers/controller"
)

const (
	// provisioningFinalizer is the finalizer of a PersistentVolumeClaim while the driver may have
	// created a volume for it that has no PersistentVolume yet.
	provisioningFinalizer = "storage.keelson.dev/provisioning"
	// deletionFinalizer is the finalizer of a PersistentVolume with the reclaim policy Delete whose
	// storage is not deleted yet. Kubernetes' external-provisioner uses the same finalizer.
	deletionFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	// reservedPrefix is the prefix of StorageClass parameters that are not passed to the driver.
	// fsType is the parameter with the file system type.
	reservedPrefix = "csi.storage.k8s.io/"
	fsType         = reservedPrefix + "fstype"
)

// served returns the names of the drivers that this controller manages.
func (c *Controller) served() []string {
	all, err := c.objects.List(labels.SelectorFromSet(labels.Set{Label: Kubelet}))
	if err != nil {
		return nil // cannot happen: List of a cache returns no error
	}
	var out []string
	for _, d := range all {
		out = append(out, d.Name)
	}
	return out
}

func (c *Controller) serves(driver string) bool {
	d, err := c.objects.Get(driver)
	return err == nil && d.Labels[Label] == Kubelet
}

// registered returns the entry of a driver in a CSINode, or nil if the driver is not registered
// there.
func registered(n *storagev1.CSINode, driver string) *storagev1.CSINodeDriver {
	i := slices.IndexFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	if i < 0 {
		return nil
	}
	return &n.Spec.Drivers[i]
}

// syncClaim creates the volume for a claim whose annotation
// volume.kubernetes.io/storage-provisioner names a driver of this controller. If the claim is being
// deleted, it deletes a volume that may have been created.
func (c *Controller) syncClaim(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	driver := claim.Annotations[volume.AnnStorageProvisioner]
	begun := slices.Contains(claim.Finalizers, provisioningFinalizer)
	wanted := claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil
	if !begun && !wanted {
		return nil
	}
	if !c.serves(driver) { // check this before the class, because the annotation may no longer name a driver
		return c.removeClaimFinalizer(ctx, claim)
	}
	class, err := c.classes.Get(volume.GetPersistentVolumeClaimClass(claim))
	if apierrors.IsNotFound(err) || err == nil && class.Provisioner != driver {
		return c.removeClaimFinalizer(ctx, claim)
	}
	if err != nil {
		return fmt.Errorf("class: %w", err)
	}
	delayed := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if delayed && claim.Annotations[volume.AnnSelectedNode] == "" {
		return c.removeClaimFinalizer(ctx, claim)
	}
	// Ask the API server, because the cache may not show a volume that was just created.
	_, err = c.Client.CoreV1().PersistentVolumes().Get(ctx, volumeName(claim), metav1.GetOptions{})
	switch {
	case err == nil || !wanted && claim.Spec.VolumeName != "":
		return c.removeClaimFinalizer(ctx, claim)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("volume: %w", err)
	case wanted:
		return c.provision(ctx, claim, class)
	}
	return c.deleteAbandoned(ctx, claim, class)
}

func volumeName(claim *v1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// removeClaimFinalizer removes provisioningFinalizer from a claim, if it has it.
func (c *Controller) removeClaimFinalizer(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	if !slices.Contains(claim.Finalizers, provisioningFinalizer) {
		return nil
	}
	next := claim.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == provisioningFinalizer })
	_, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer of claim: %w", err)
	}
	return nil
}

// provision adds provisioningFinalizer to the claim, makes the driver create the volume, creates
// the PersistentVolume, and removes the finalizer.
func (c *Controller) provision(ctx context.Context, claim *v1.PersistentVolumeClaim,
	class *storagev1.StorageClass) error {
	if !slices.Contains(claim.Finalizers, provisioningFinalizer) {
		next := claim.DeepCopy()
		next.Finalizers = append(next.Finalizers, provisioningFinalizer)
		var err error
		if claim, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next,
			metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("finalizer of claim: %w", err)
		}
	}
	c.Events.Eventf(claim, v1.EventTypeNormal, "Provisioning",
		"External provisioner is provisioning volume for claim %q", controller.Key(claim))
	gone, err := c.selectedNodeGone(ctx, claim)
	if err != nil {
		return err
	}
	if gone {
		c.Events.Eventf(claim, v1.EventTypeWarning, "ProvisioningFailed", "node %q not found",
			claim.Annotations[volume.AnnSelectedNode])
		return c.selectOtherNode(ctx, claim, nil)
	}
	got, err := c.create(ctx, claim, class)
	if err != nil {
		c.Events.Eventf(claim, v1.EventTypeWarning, "ProvisioningFailed",
			"failed to provision volume with StorageClass %q: %v", class.Name, err)
		if status.Code(err) == codes.ResourceExhausted {
			// The published capacity was wrong, so ask for the capacity again.
			c.capacityQueue.AddPaced(class.Provisioner)
			return c.selectOtherNode(ctx, claim, err)
		}
		return err
	}
	v := newVolume(claim, class, got)
	if _, err := c.Client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("volume: %w", err)
	}
	c.Events.Eventf(claim, v1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", v.Name)
	return c.removeClaimFinalizer(ctx, claim)
}

// selectedNodeGone reports whether the node that the scheduler selected for a claim, or its
// CSINode, was deleted. If the cache does not show the node, it asks the API server, because the
// node may be new.
func (c *Controller) selectedNodeGone(ctx context.Context, claim *v1.PersistentVolumeClaim) (bool, error) {
	name := claim.Annotations[volume.AnnSelectedNode]
	if name == "" {
		return false, nil
	}
	_, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		_, err = c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	if err == nil {
		if _, err = c.csiNodes.Get(name); apierrors.IsNotFound(err) {
			_, err = c.Client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
		}
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("selected node: %w", err)
	}
	return false, nil
}

// selectOtherNode removes the selected node from a claim, so that the scheduler selects another
// one. It is called when the selected node has no capacity or was deleted. If the scheduler
// selected no node, it returns cause.
func (c *Controller) selectOtherNode(ctx context.Context, claim *v1.PersistentVolumeClaim, cause error) error {
	if claim.Annotations[volume.AnnSelectedNode] == "" {
		return cause
	}
	next := claim.DeepCopy()
	delete(next.Annotations, volume.AnnSelectedNode)
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == provisioningFinalizer })
	if _, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("selected node: %w", err)
	}
	return nil
}

// deleteAbandoned deletes the volume that may have been created for a claim that is being deleted.
// To get the volume's handle, it first repeats the create call, which returns the existing volume.
func (c *Controller) deleteAbandoned(ctx context.Context, claim *v1.PersistentVolumeClaim,
	class *storagev1.StorageClass) error {
	gone, err := c.selectedNodeGone(ctx, claim)
	if err != nil {
		return err
	}
	if gone { // the volume may be accessible from another node
		claim = claim.DeepCopy()
		delete(claim.Annotations, volume.AnnSelectedNode)
	}
	got, err := c.create(ctx, claim, class)
	if nothingCreated(err) {
		return c.removeClaimFinalizer(ctx, claim)
	}
	if err != nil {
		return err
	}
	node, err := c.selectNode(class.Provisioner, claim.Annotations[volume.AnnSelectedNode], accessibleFrom(affinity(got)))
	if err != nil {
		return err
	}
	if err := c.callController(ctx, node.Name, class.Provisioner, "DeleteVolume",
		&csi.DeleteVolumeRequest{VolumeId: got.GetVolumeId()}, &csi.DeleteVolumeResponse{}); err != nil {
		return fmt.Errorf("delete volume: %w", err)
	}
	return c.removeClaimFinalizer(ctx, claim)
}

// nothingCreated reports whether the error of a create call means that the driver has created no
// volume and will not create one later.
func nothingCreated(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.AlreadyExists, codes.ResourceExhausted,
		codes.FailedPrecondition,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// create calls the driver to create the volume for a claim.
func (c *Controller) create(ctx context.Context, claim *v1.PersistentVolumeClaim,
	class *storagev1.StorageClass) (*csi.Volume, error) {
	driver := class.Provisioner
	given, err := parameters(class)
	if err != nil {
		return nil, err
	}
	node, err := c.selectNode(driver, claim.Annotations[volume.AnnSelectedNode], allowedNodes(class))
	if err != nil {
		return nil, err
	}
	able, err := c.abilities(ctx, node.Name, driver)
	if err != nil {
		return nil, err
	}
	source, err := c.source(ctx, claim, driver)
	if apierrors.IsNotFound(err) {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return nil, err
	}
	mutable, err := c.mutableParameters(claim, able, driver)
	if err != nil {
		return nil, err
	}
	size, limit := claim.Spec.Resources.Requests[v1.ResourceStorage], claim.Spec.Resources.Limits[v1.ResourceStorage]
	precise := able[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
	req := &csi.CreateVolumeRequest{
		Name: volumeName(claim), Parameters: given, MutableParameters: mutable, VolumeContentSource: source,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value(), LimitBytes: limit.Value()},
		VolumeCapabilities: []*csi.VolumeCapability{capability(claim.Spec.VolumeMode, claim.Spec.AccessModes,
			class.Parameters[fsType], class.MountOptions, precise)},
	}
	if n, err := c.csiNodes.Get(node.Name); err == nil {
		req.AccessibilityRequirements = requirements(registered(n, driver), node)
	}
	got := &csi.CreateVolumeResponse{}
	if err := c.callController(ctx, node.Name, driver, "CreateVolume", req, got); err != nil {
		return nil, err
	}
	return got.GetVolume(), nil
}

// parameters returns the parameters of a StorageClass that are passed to the driver. It returns an
// error if the class refers to Secrets.
func parameters(class *storagev1.StorageClass) (map[string]string, error) {
	out := map[string]string{}
	for k, v := range class.Parameters {
		switch {
		case strings.HasPrefix(k, reservedPrefix) && strings.Contains(k, "secret"):
			return nil, status.Errorf(codes.InvalidArgument,
				"storage class %s refers to secrets, which are not supported", class.Name)
		case !strings.HasPrefix(k, reservedPrefix):
			out[k] = v
		}
	}
	return out, nil
}

// requirements returns the topology that a new volume must be accessible from: that of the node on
// which the driver is called.
func requirements(d *storagev1.CSINodeDriver, node *v1.Node) *csi.TopologyRequirement {
	if d == nil || len(d.TopologyKeys) == 0 {
		return nil
	}
	here := []*csi.Topology{{Segments: segments(d, node)}}
	return &csi.TopologyRequirement{Requisite: here, Preferred: here}
}

// segments returns the node's labels that are topology keys of the driver.
func segments(d *storagev1.CSINodeDriver, node *v1.Node) map[string]string {
	out := map[string]string{}
	for _, k := range d.TopologyKeys {
		out[k] = node.Labels[k]
	}
	return out
}

// allowedNodes returns a function that reports whether the allowedTopologies of a StorageClass
// include a node. It returns nil if all nodes are allowed.
func allowedNodes(class *storagev1.StorageClass) func(*v1.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return nil
	}
	return func(n *v1.Node) bool {
		return slices.ContainsFunc(class.AllowedTopologies, func(t v1.TopologySelectorTerm) bool {
			return !slices.ContainsFunc(t.MatchLabelExpressions,
				func(r v1.TopologySelectorLabelRequirement) bool { return !slices.Contains(r.Values, n.Labels[r.Key]) })
		})
	}
}

// affinity returns the node affinity for a volume that a driver created, or nil if all nodes can
// access it.
func affinity(v *csi.Volume) *v1.VolumeNodeAffinity {
	var terms []v1.NodeSelectorTerm
	for _, t := range v.GetAccessibleTopology() {
		var term v1.NodeSelectorTerm
		for _, k := range slices.Sorted(maps.Keys(t.GetSegments())) {
			term.MatchExpressions = append(term.MatchExpressions,
				v1.NodeSelectorRequirement{Key: k, Operator: v1.NodeSelectorOpIn, Values: []string{t.GetSegments()[k]}})
		}
		if len(term.MatchExpressions) > 0 {
			terms = append(terms, term)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
}

// accessibleFrom returns a function that reports whether a node can access a volume.
func accessibleFrom(a *v1.VolumeNodeAffinity) func(*v1.Node) bool {
	v := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: a}}
	return func(n *v1.Node) bool { return volume.CheckNodeAffinity(v, n.Labels) == nil }
}

// newVolume returns the PersistentVolume for the volume got that the driver created for a claim.
func newVolume(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, got *csi.Volume) *v1.PersistentVolume {
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if n := got.GetCapacityBytes(); n > 0 {
		size = *resource.NewQuantity(n, resource.BinarySI)
	}
	policy, finalizers := v1.PersistentVolumeReclaimDelete, []string{deletionFinalizer}
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	if policy != v1.PersistentVolumeReclaimDelete {
		finalizers = nil
	}
	attributes := claim.Spec.VolumeAttributesClassName
	if attributes != nil && *attributes == "" {
		attributes = nil
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volumeName(claim),
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: class.Provisioner}, Finalizers: finalizers,
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: size}, AccessModes: claim.Spec.AccessModes,
			VolumeMode:       claim.Spec.VolumeMode,
			StorageClassName: class.Name, VolumeAttributesClassName: attributes,
			MountOptions: class.MountOptions, PersistentVolumeReclaimPolicy: policy, NodeAffinity: affinity(got),
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: class.Provisioner, VolumeHandle: got.GetVolumeId(),
				VolumeAttributes: got.GetVolumeContext(), FSType: class.Parameters[fsType],
			}},
		},
	}
}
