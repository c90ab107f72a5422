// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb_test

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/perturb"
)

// fault is the name of a ConfigMap that the test creates when it sees a forbidden state.
const fault = "fault"

// attacher is the finalizer that the attacher of the CSI driver d sets on VolumeAttachments.
const attacher = "external-attacher/d"

// attach simulates the attacher of a CSI driver and the kubelets: it attaches and detaches volumes
// as the VolumeAttachments request, and updates volumesInUse of nodes. If a volume is attached to
// two nodes, or is detached from a node that still uses it, it creates a ConfigMap with a
// description (the constant fault is its name).
func attach(ctx context.Context, u *perturb.Users) error {
	list, err := u.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes := map[string]string{}
	for i := range list.Items {
		a := &list.Items[i]
		volume := *a.Spec.Source.PersistentVolumeName
		if nodes[volume] != "" {
			if err := note(ctx, u, volume+" is attached to "+nodes[volume]+" and "+a.Spec.NodeName); err != nil {
				return err
			}
		}
		nodes[volume] = a.Spec.NodeName
		if err := work(ctx, u, a); err != nil {
			return err
		}
	}
	return use(ctx, u)
}

func note(ctx context.Context, u *perturb.Users, what string) error {
	_, err := u.Client.CoreV1().ConfigMaps("default").Create(ctx, &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fault}, Data: map[string]string{"what": what},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func work(ctx context.Context, u *perturb.Users, a *storagev1.VolumeAttachment) error {
	attachments := u.Client.StorageV1().VolumeAttachments()
	switch {
	case a.DeletionTimestamp != nil:
		node, err := u.Client.CoreV1().Nodes().Get(ctx, a.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Status.VolumesInUse) > 0 {
			return note(ctx, u, a.Name+" is detached while node "+node.Name+" uses it")
		}
		a.Finalizers = nil
		_, err = attachments.Update(ctx, a, metav1.UpdateOptions{})
		return err
	case !slices.Contains(a.Finalizers, attacher):
		a.Finalizers = append(a.Finalizers, attacher)
		_, err := attachments.Update(ctx, a, metav1.UpdateOptions{})
		return err
	case !a.Status.Attached:
		a.Status.Attached = true
		_, err := attachments.UpdateStatus(ctx, a, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// use updates volumesInUse of all nodes: a node reports its attached volumes as in use while a pod
// runs there.
func use(ctx context.Context, u *perturb.Users) error {
	nodes, err := u.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		pods, err := u.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil {
			return err
		}
		var used []v1.UniqueVolumeName
		if len(pods.Items) > 0 {
			for _, a := range n.Status.VolumesAttached {
				used = append(used, a.Name)
			}
		}
		if slices.Equal(used, n.Status.VolumesInUse) {
			continue
		}
		n.Status.VolumesInUse = used
		if _, err := u.Client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// neverTwice returns an error if attach recorded a forbidden state.
func neverTwice(ctx context.Context, u *perturb.Users) error {
	got, err := u.Client.CoreV1().ConfigMaps("default").Get(ctx, fault, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return errors.New(got.Data["what"])
}
