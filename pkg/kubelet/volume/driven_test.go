// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/csi"
)

// drivers implements Drivers. Mount returns path and labelled, Expand returns expanding, and asked
// records the calls.
type drivers struct {
	path      string
	labelled  bool
	expanding error
	asked     []string
}

func (d *drivers) Mount(_ context.Context, _ *v1.Pod, _ csi.Volume) (csi.Mounted, error) {
	d.asked = append(d.asked, "mount")
	if d.path == "" {
		return csi.Mounted{}, errors.New("no driver")
	}
	return csi.Mounted{Path: d.path, Labelled: d.labelled}, nil
}

func (d *drivers) Teardown(context.Context, types.UID) error {
	d.asked = append(d.asked, "teardown")
	return nil
}

func (d *drivers) Expand(context.Context, *v1.Pod, csi.Volume) error {
	d.asked = append(d.asked, "expand")
	return d.expanding
}

func (d *drivers) Stats(context.Context, *v1.Pod, csi.Volume) (*statsapi.FsStats, error) {
	return nil, nil
}

func (d *drivers) NeedsRepublish(context.Context, string) (bool, error) { return false, nil }

func TestGrow(t *testing.T) {
	tests := map[string]struct {
		has, asks string
		status    v1.ClaimResourceStatus
		err       error
		want      string
		then      v1.ClaimResourceStatus
		fails     bool
	}{
		"same size": {has: "2Gi", asks: "2Gi", want: "2Gi"},
		"larger": {has: "1Gi", asks: "2Gi",
			status: v1.PersistentVolumeClaimNodeResizePending, want: "2Gi"},
		"larger, fails for now": {has: "1Gi", asks: "2Gi", err: status.Error(codes.Internal, "x"),
			want: "1Gi", then: v1.PersistentVolumeClaimNodeResizeInProgress, fails: true},
		"larger, fails for good": {has: "1Gi", asks: "2Gi", err: status.Error(codes.OutOfRange, "x"),
			want: "1Gi", then: v1.PersistentVolumeClaimNodeResizeInfeasible},
		"larger, known to be infeasible": {has: "1Gi", asks: "2Gi",
			status: v1.PersistentVolumeClaimNodeResizeInfeasible, want: "1Gi",
			then: v1.PersistentVolumeClaimNodeResizeInfeasible},
	}
	server := testserver.Start(t, testserver.Options{})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bindClaim(t, server.Client, tc.has, tc.asks, tc.status)
			m := newManager(t, newMemory())
			m.cfg.Client, m.cfg.Drivers = server.Client, &drivers{path: t.TempDir(), expanding: tc.err}
			pod := claimPod()
			_, err := m.makeClaim(t.Context(), pod, &pod.Spec.Volumes[0], false)
			if (err != nil) != tc.fails {
				t.Errorf("made with %v", err)
			}
			got, err := server.Client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if s := got.Status.Capacity.Storage().String(); s != tc.want {
				t.Errorf("size %s, want %s", s, tc.want)
			}
			if s := got.Status.AllocatedResourceStatuses[v1.ResourceStorage]; s != tc.then {
				t.Errorf("status %q, want %q", s, tc.then)
			}
			if tc.want == tc.asks && len(got.Status.Conditions) > 0 {
				t.Errorf("conditions %v", got.Status.Conditions)
			}
		})
	}
}

// TestReducedRequest reduces the requested size of a claim after the driver has failed to grow its
// volume. The kubelet must then report NodeResizeInfeasible, because the control plane tries the
// new size only when the node has stopped trying the old one. With an unchanged request, the
// kubelet must keep NodeResizeInProgress.
func TestReducedRequest(t *testing.T) {
	tests := map[string]struct {
		asks string
		want v1.ClaimResourceStatus
	}{
		"same request":    {"2Gi", v1.PersistentVolumeClaimNodeResizeInProgress},
		"request reduced": {"1500Mi", v1.PersistentVolumeClaimNodeResizeInfeasible},
	}
	server := testserver.Start(t, testserver.Options{})
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "d",
		AllowVolumeExpansion: new(true)}
	if _, err := server.Client.StorageV1().StorageClasses().Create(t.Context(), class,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bindClaim(t, server.Client, "1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending)
			claims := server.Client.CoreV1().PersistentVolumeClaims("default")
			m := newManager(t, newMemory())
			m.cfg.Client, m.cfg.Drivers = server.Client,
				&drivers{path: t.TempDir(), expanding: status.Error(codes.Internal, "x")}
			pod := claimPod()
			attempt := func() v1.ClaimResourceStatus {
				// An error is expected in some cases. TestGrow checks the errors.
				_, _ = m.makeClaim(t.Context(), pod, &pod.Spec.Volumes[0], false)
				got, err := claims.Get(t.Context(), "c", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return got.Status.AllocatedResourceStatuses[v1.ResourceStorage]
			}
			if got := attempt(); got != v1.PersistentVolumeClaimNodeResizeInProgress {
				t.Errorf("at first %q", got)
			}
			patch := `{"spec":{"resources":{"requests":{"storage":"` + tc.asks + `"}}}}`
			if _, err := claims.Patch(t.Context(), "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := attempt(); got != tc.want {
				t.Errorf("then %q, want %q", got, tc.want)
			}
		})
	}
}

// bindClaim creates a claim that is bound to a CSI volume, and deletes an earlier claim and volume
// of the same names. The argument has is the size of the file system, and asks the requested size.
func bindClaim(t *testing.T, client kubernetes.Interface, has, asks string, resize v1.ClaimResourceStatus) {
	t.Helper()
	bindVolume(t, client,
		v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}, has, asks, resize)
}

func bindVolume(t *testing.T, client kubernetes.Interface, source v1.PersistentVolumeSource, has, asks string,
	resize v1.ClaimResourceStatus) {
	t.Helper()
	size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claims, volumes := client.CoreV1().PersistentVolumeClaims("default"), client.CoreV1().PersistentVolumes()
	claim, err := claims.Create(t.Context(), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: "pv", StorageClassName: new("grows"),
			Resources: v1.VolumeResourceRequirements{Requests: size(has)},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
		AccessModes: modes, StorageClassName: "grows", Capacity: size(asks),
		ClaimRef:               &v1.ObjectReference{Namespace: "default", Name: "c", UID: claim.UID},
		PersistentVolumeSource: source,
	}}
	if source.Local != nil {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpExists}},
		}}}}
	}
	if _, err := volumes.Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size(has), AccessModes: modes}
	if resize != "" {
		claim.Status.AllocatedResources = size(asks)
		claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: resize}
		claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{
			{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	}
	if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		none := []byte(`{"metadata":{"finalizers":null}}`)
		for _, err := range []error{
			second(claims.Patch(context.Background(), "c", types.MergePatchType, none, metav1.PatchOptions{})),
			claims.Delete(context.Background(), "c", metav1.DeleteOptions{}),
			second(volumes.Patch(context.Background(), "pv", types.MergePatchType, none, metav1.PatchOptions{})),
			volumes.Delete(context.Background(), "pv", metav1.DeleteOptions{}),
		} {
			// The claim may already be deleted, because removing its finalizers completes an
			// earlier deletion.
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
}

// growVolume sets the size of the volume. It returns once the server's cache, from which the
// kubelet reads, has the new size, because the cache may lag behind an acknowledged write.
func growVolume(t *testing.T, client kubernetes.Interface, size string) {
	t.Helper()
	volumes := client.CoreV1().PersistentVolumes()
	patch := []byte(`{"spec":{"capacity":{"storage":"` + size + `"}}}`)
	pv, err := volumes.Patch(t.Context(), "pv", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volumes.Get(t.Context(), "pv", metav1.GetOptions{ResourceVersion: pv.ResourceVersion}); err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }
