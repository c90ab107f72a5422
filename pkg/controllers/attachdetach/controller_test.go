// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestServer checks that a volume is attached to the node of a second pod, but only after the node
// of the first pod no longer reports it as in use.
func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	bound(t, s.Client, "")
	addNode := func(name string) {
		t.Helper()
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{managed: "true"}}}
		if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	addNode("n")
	addNode("m")
	registry := prometheus.NewRegistry()
	controllertest.RunAs(t, s, "attachdetach-controller", controller.Options{}, controllertest.WithMetrics(registry, New))
	vol := target{"d", "h"}
	attachments, nodes := s.Client.StorageV1().VolumeAttachments(), s.Client.CoreV1().Nodes()
	status := func(do func(string, types.PatchType, []byte) error, name, text string) {
		t.Helper()
		if err := do(name, types.MergePatchType, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	patchNode := func(name string, kind types.PatchType, b []byte) error {
		_, err := nodes.Patch(t.Context(), name, kind, b, metav1.PatchOptions{}, "status")
		return err
	}
	patchAttachment := func(name string, kind types.PatchType, b []byte) error {
		_, err := attachments.Patch(t.Context(), name, kind, b, metav1.PatchOptions{}, "status")
		return err
	}
	asked := func(node string) func(context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			a, err := attachments.Get(ctx, vol.attachment(node), metav1.GetOptions{})
			return err, err == nil && a.Spec.NodeName == node && *a.Spec.Source.PersistentVolumeName == "pv"
		}
	}
	listed := func(ctx context.Context) (any, bool) {
		n, err := nodes.Get(ctx, "n", metav1.GetOptions{})
		return n, err == nil && len(n.Status.VolumesAttached) == 1 && n.Status.VolumesAttached[0].Name == vol.name()
	}
	user(t, s.Client, "first", "n", "")
	controllertest.Eventually(t, "the volume is to be attached", asked("n"))
	status(patchAttachment, vol.attachment("n"), `{"status":{"attached":true}}`)
	controllertest.Eventually(t, "the node lists the volume as attached", listed)
	status(patchNode, "n", `{"status":{"volumesInUse":["`+string(vol.name())+`"]}}`)
	// Wait until the controller has received the update of volumesInUse: create another node with a
	// pod, and wait for the attachment of the pod's volume. The controller makes this attachment
	// only after the event of the new node, which its watch delivers after the update.
	addNode("later")
	bound(t, s.Client, "2")
	user(t, s.Client, "witness", "later", "2")
	controllertest.Eventually(t, "the controller has seen what is in use", func(ctx context.Context) (any, bool) {
		_, err := attachments.Get(ctx, target{"d", "h2"}.attachment("later"), metav1.GetOptions{})
		return err, err == nil
	})
	user(t, s.Client, "second", "m", "")
	zero := int64(0)
	if err := s.Client.CoreV1().Pods("default").Delete(t.Context(), "first",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	if _, err := attachments.Get(t.Context(), vol.attachment("m"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("attached to a second node: %v", err)
	}
	if _, ok := listed(t.Context()); !ok {
		t.Error("detached while it is in use")
	}
	status(patchNode, "n", `{"status":{"volumesInUse":null}}`)
	controllertest.Eventually(t, "the volume is to be attached to the next node", asked("m"))
	if _, err := attachments.Get(t.Context(), vol.attachment("n"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("not detached from the first node: %v", err)
	}
	status(patchAttachment, vol.attachment("m"), `{"status":{"attached":false,"attachError":{"message":"broken"}}}`)
	controllertest.Eventually(t, "the metrics show it", func(context.Context) (any, bool) {
		got := controllertest.Metrics(t, registry)
		of := func(name, status string) float64 {
			return got["storage_operation_duration_seconds{migrated=false,operation_name="+name+",status="+status+
				",volume_plugin=kubernetes.io/csi:d}"]
		}
		return got, of("volume_attach", "success") == 1 && of("volume_detach", "success") == 1 &&
			of("volume_attach", "fail-unknown") == 1 &&
			got["attachdetach_controller_total_volumes{plugin_name=kubernetes.io/csi:d,state=desired_state_of_world}"] == 2
	})
}

// TestDeletedVolume checks that a volume is detached although its PersistentVolume was deleted before the
// node reported the volume as attached.
func TestDeletedVolume(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	bound(t, s.Client, "")
	core, attachments := s.Client.CoreV1(), s.Client.StorageV1().VolumeAttachments()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{managed: "true"}}}
	if _, err := core.Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.RunAs(t, s, "attachdetach-controller", controller.Options{}, New)
	user(t, s.Client, "p", "n", "")
	name := target{"d", "h"}.attachment("n")
	controllertest.Eventually(t, "the volume is to be attached", func(ctx context.Context) (any, bool) {
		_, err := attachments.Get(ctx, name, metav1.GetOptions{})
		return err, err == nil
	})
	_, errPatch := core.PersistentVolumes().Patch(t.Context(), "pv", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	errVolume := core.PersistentVolumes().Delete(t.Context(), "pv", metav1.DeleteOptions{})
	errPod := core.Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err := errors.Join(errPatch, errVolume, errPod); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the volume is to be detached", func(ctx context.Context) (any, bool) {
		_, err := attachments.Get(ctx, name, metav1.GetOptions{})
		return err, apierrors.IsNotFound(err)
	})
}

// bound creates a PersistentVolumeClaim and a PersistentVolume that are bound to each other. Their
// names end in suffix.
func bound(t *testing.T, client kubernetes.Interface, suffix string) {
	t.Helper()
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claims := client.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Create(t.Context(),
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c" + suffix}, Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: "pv" + suffix, Resources: v1.VolumeResourceRequirements{Requests: size},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().PersistentVolumes().Create(t.Context(),
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv" + suffix}, Spec: v1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size,
			ClaimRef: &v1.ObjectReference{Namespace: "default", Name: "c" + suffix, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d",
				VolumeHandle: "h" + suffix}},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase = v1.ClaimBound
	if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// user creates a pod on a node. The pod uses the claim whose name ends in suffix.
func user(t *testing.T, client kubernetes.Interface, name, node, suffix string) {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}},
		Volumes: []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c" + suffix}}}},
	}}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
