// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// disks simulates a driver that has some capacity on each node.
type disks struct {
	mu   sync.Mutex
	room map[string]int64
}

func (d *disks) set(node string, room int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room[node] = room
}

func (d *disks) call(_ context.Context, node, _, method string, in, out protoadapt.MessageV1) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	req, ok := in.(*csi.GetCapacityRequest)
	room, there := d.room[node]
	if !ok || !there || req.GetAccessibleTopology().GetSegments()["zone"] == "" ||
		req.GetParameters()["disk"] != "fast" || len(req.GetParameters()) != 1 {
		return status.Errorf(codes.Unavailable, "%s of %s: %v", method, node, in)
	}
	got := out.(*csi.GetCapacityResponse)
	got.AvailableCapacity = room
	return nil
}

// published returns the published CSIStorageCapacity objects as sorted texts.
func published(ctx context.Context, s *testserver.Server) ([]string, error) {
	list, err := s.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, o := range list.Items {
		out = append(out, fmt.Sprintf("%s of %s in %v", o.Capacity, o.StorageClassName, o.NodeTopology.MatchLabels))
	}
	slices.Sort(out)
	return out, nil
}

func awaitPublished(t *testing.T, s *testserver.Server, want ...string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("published: %q", want), func(ctx context.Context) (any, bool) {
		got, err := published(ctx, s)
		return got, err == nil && slices.Equal(got, want)
	})
}

// TestCapacity checks that a capacity is published for each class with delayed binding and each set
// of nodes with the same topology, and is updated when volumes, nodes or the driver change.
func TestCapacity(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	d := &disks{room: map[string]int64{"a": 1 << 30, "b": 2 << 30}}
	storage := s.Client.StorageV1()
	for node, zone := range map[string]string{"a": "x", "b": "y", "c": "y", "silent": "z"} {
		n, err := s.Client.CoreV1().Nodes().Create(t.Context(),
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"zone": zone}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if node != "silent" {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			if _, err := s.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := storage.CSINodes().Create(t.Context(),
			&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: name, NodeID: node, TopologyKeys: []string{"zone"}}},
			}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for class, mode := range map[string]storagev1.VolumeBindingMode{
		"waits": storagev1.VolumeBindingWaitForFirstConsumer, "now": storagev1.VolumeBindingImmediate} {
		if _, err := storage.StorageClasses().Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: name, VolumeBindingMode: &mode,
			Parameters: map[string]string{fsType: "ext4", "disk": "fast"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{Label: Kubelet}}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
	if _, err := storage.CSIDrivers().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, s, controller.Options{}, func(deps controller.Deps) (controller.Controller, error) {
		deps.Options.Periods.Attachments = time.Hour // what is published must not depend on it
		made, err := New(deps)
		if err == nil {
			made.(*Controller).drivers = d
		}
		return made, err
	})
	awaitPublished(t, s, "1Gi of waits in map[zone:x]", "2Gi of waits in map[zone:y]")

	// When a volume is created, the capacity is published again.
	d.set("b", 1<<30)
	if _, err := s.Client.CoreV1().PersistentVolumes().Create(t.Context(),
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.PersistentVolumeSpec{
			Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: name,
				VolumeHandle: "v"}},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPublished(t, s, "1Gi of waits in map[zone:x]", "1Gi of waits in map[zone:y]")

	// When another client deletes the published objects, they are created again.
	if err := storage.CSIStorageCapacities(metav1.NamespaceSystem).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPublished(t, s, "1Gi of waits in map[zone:x]", "1Gi of waits in map[zone:y]")

	// When a node is deleted, its capacity is deleted. Later, when the driver's label is removed,
	// all capacities of the driver are deleted.
	if err := storage.CSINodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.set("b", 3<<30)
	if _, err := storage.CSINodes().Patch(t.Context(), "c", types.MergePatchType,
		[]byte(`{"spec":{"drivers":[]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPublished(t, s, "3Gi of waits in map[zone:y]")

	// When a node becomes ready, its capacity is published. On a new machine, this is after its driver is registered.
	d.set("silent", 4<<30)
	if _, err := s.Client.CoreV1().Nodes().Patch(t.Context(), "silent", types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	awaitPublished(t, s, "3Gi of waits in map[zone:y]", "4Gi of waits in map[zone:z]")
	if _, err := storage.CSIDrivers().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPublished(t, s)
}
