// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

const nothingToBind = "didn't find available persistent volumes to bind"

// volumeSetup creates two nodes, and a storage class with the binding mode WaitForFirstConsumer.
// The tests themselves act as the provisioner and the volume controller.
func volumeSetup(t *testing.T, provisioner string) kubernetes.Interface {
	t.Helper()
	c := setup(t)
	_, err := c.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	addNode(t, c, "a", nil)
	addNode(t, c, "b", nil)
	return c
}

var gigabyte = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}

func addStorageClaim(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("slow"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
			Resources: v1.VolumeResourceRequirements{Requests: gigabyte},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// addVolume creates a volume that only the given node can access, or all nodes if node is empty.
func addVolume(t *testing.T, c kubernetes.Interface, name, node string) {
	t.Helper()
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		Capacity: gigabyte, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, StorageClassName: "slow",
		PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/" + name}},
	}}
	if node != "" {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	pv, err := c.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pv.Status.Phase = v1.VolumeAvailable
	if _, err := c.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// using returns a pod with a claim. If node is not empty, the pod's node selector selects that
// node.
func using(name, claim, node string) *v1.Pod {
	return pod(name, func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		if node != "" {
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
		}
	})
}

// poll waits until ok returns true. If that takes too long, the test fails with a message that
// contains what.
func poll(t *testing.T, what string, ok func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// selected waits until the scheduler has selected the node for a claim.
func selected(t *testing.T, c kubernetes.Interface, claim, node string) {
	t.Helper()
	poll(t, "claim "+claim+" is to be provisioned on "+node, func(ctx context.Context) (bool, error) {
		got, err := c.CoreV1().PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{})
		return err == nil && got.Annotations[volume.AnnSelectedNode] == node, err
	})
}

// takeBack removes the selected node from a claim, as a provisioner does when it cannot provision
// the volume there.
func takeBack(t *testing.T, c kubernetes.Interface, claim string) {
	t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`)
	if _, err := c.CoreV1().PersistentVolumeClaims("default").Patch(t.Context(), claim, types.MergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bindClaim binds a claim to a volume, as the volume controller does.
func bindClaim(t *testing.T, c kubernetes.Interface, claim, name string) {
	t.Helper()
	got, err := c.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Spec.VolumeName = name
	metav1.SetMetaDataAnnotation(&got.ObjectMeta, volume.AnnBindCompleted, "yes")
	if got, err = c.CoreV1().PersistentVolumeClaims("default").Update(t.Context(), got,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got.Status.Phase = v1.ClaimBound
	if _, err := c.CoreV1().PersistentVolumeClaims("default").UpdateStatus(t.Context(), got,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, c kubernetes.Interface, pod string) {
	t.Helper()
	if err := c.CoreV1().Pods("default").Delete(t.Context(), pod,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
}

// TestSelectedNodeIsKept checks that pods with a claim for which a node is selected are rejected on
// all other nodes, until the provisioner removes the selection.
func TestSelectedNodeIsKept(t *testing.T) {
	c := volumeSetup(t, "example.com/test")
	addStorageClaim(t, c, "data")
	create(t, c, using("first", "data", "a"))
	selected(t, c, "data", "a")
	create(t, c, using("second", "data", "b"))
	await(t, c, "second", "refused", refused(nothingToBind))
	selected(t, c, "data", "a")

	// The scheduler must keep the selection even if a suitable volume appears or the pod is
	// deleted.
	addVolume(t, c, "fits", "")
	remove(t, c, "first")
	create(t, c, using("third", "data", "b"))
	await(t, c, "third", "refused", refused(nothingToBind))
	selected(t, c, "data", "a")

	takeBack(t, c, "data")
	poll(t, "the volume that fits is bound", func(ctx context.Context) (bool, error) {
		pv, err := c.CoreV1().PersistentVolumes().Get(ctx, "fits", metav1.GetOptions{})
		return err == nil && pv.Spec.ClaimRef != nil, err
	})
	bindClaim(t, c, "data", "fits")
	await(t, c, "second", "bound", bound)
	await(t, c, "third", "bound", bound)
}

// TestProvisionedElsewhere checks that a pod is not bound to the selected node if the node cannot
// access the volume that was provisioned.
func TestProvisionedElsewhere(t *testing.T) {
	c := volumeSetup(t, "example.com/test")
	addStorageClaim(t, c, "data")
	create(t, c, using("p", "data", ""))
	var node string
	poll(t, "a node is selected", func(ctx context.Context) (bool, error) {
		got, err := c.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data", metav1.GetOptions{})
		if err == nil {
			node = got.Annotations[volume.AnnSelectedNode]
		}
		return node != "", err
	})
	other := map[string]string{"a": "b", "b": "a"}[node]
	addVolume(t, c, "made", other)
	bindClaim(t, c, "data", "made")
	if p := await(t, c, "p", "bound", bound); p.Spec.NodeName != other {
		t.Errorf("the pod is bound to %s, its volume is on %s", p.Spec.NodeName, other)
	}
}

// TestSharedClaimGetsOneVolume checks that two pods which share a claim and are scheduled at the
// same time bind one volume to it.
func TestSharedClaimGetsOneVolume(t *testing.T) {
	c := volumeSetup(t, volume.NotSupportedProvisioner)
	addVolume(t, c, "x", "")
	addVolume(t, c, "y", "")
	addStorageClaim(t, c, "data")
	create(t, c, using("first", "data", ""))
	create(t, c, using("second", "data", ""))
	var name string
	poll(t, "a volume is bound", func(ctx context.Context) (bool, error) {
		list, err := c.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, pv := range list.Items {
				if pv.Spec.ClaimRef != nil {
					name = pv.Name
				}
			}
		}
		return name != "", err
	})
	// The scheduler is still carrying out its decision about the first pod.
	create(t, c, using("third", "data", ""))
	addStorageClaim(t, c, "other")
	create(t, c, using("fourth", "other", ""))
	free := map[string]string{"x": "y", "y": "x"}[name]
	poll(t, "the other claim gets the other volume", func(ctx context.Context) (bool, error) {
		pv, err := c.CoreV1().PersistentVolumes().Get(ctx, free, metav1.GetOptions{})
		if err == nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Name != "other" {
			t.Fatalf("claim %s has a second volume", pv.Spec.ClaimRef.Name)
		}
		return err == nil && pv.Spec.ClaimRef != nil, err
	})
	bindClaim(t, c, "data", name)
	bindClaim(t, c, "other", free)
	for _, p := range []string{"first", "second", "third", "fourth"} {
		await(t, c, p, "bound", bound)
	}
}

// TestVolumesAreFreeAfterTheirPod checks that reserved volumes are released as soon as the pod or
// its node is deleted, without waiting for the timeout.
func TestVolumesAreFreeAfterTheirPod(t *testing.T) {
	for name, end := range map[string]func(*testing.T, kubernetes.Interface){
		"pod deleted": func(t *testing.T, c kubernetes.Interface) { remove(t, c, "first") },
		"volume unbound": func(t *testing.T, c kubernetes.Interface) {
			patch := []byte(`{"spec":{"claimRef":null}}`)
			if _, err := c.CoreV1().PersistentVolumes().Patch(t.Context(), "x", types.MergePatchType, patch,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"node deleted": func(t *testing.T, c kubernetes.Interface) {
			if err := c.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := volumeSetup(t, volume.NotSupportedProvisioner)
			addVolume(t, c, "x", "")
			addStorageClaim(t, c, "data")
			create(t, c, using("first", "data", "a"))
			poll(t, "the volume is bound", func(ctx context.Context) (bool, error) {
				pv, err := c.CoreV1().PersistentVolumes().Get(ctx, "x", metav1.GetOptions{})
				return err == nil && pv.Spec.ClaimRef != nil, err
			})
			end(t, c)
			// Delete the claim and its reference in the volume, so that another claim can use the
			// volume.
			if err := c.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "data",
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			patch := []byte(`{"spec":{"claimRef":null}}`)
			if _, err := c.CoreV1().PersistentVolumes().Patch(t.Context(), "x", types.MergePatchType, patch,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			addStorageClaim(t, c, "next")
			create(t, c, using("second", "next", "b"))
			poll(t, "the volume is bound to the next claim", func(ctx context.Context) (bool, error) {
				pv, err := c.CoreV1().PersistentVolumes().Get(ctx, "x", metav1.GetOptions{})
				return err == nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Name == "next", err
			})
		})
	}
}
