// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"encoding/json"
	"fmt"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const snapshotGroup = "snapshot.storage.k8s.io"

// source returns the snapshot or volume that a claim's volume must be copied from, or nil if the
// claim has no data source.
func (c *Controller) source(ctx context.Context, claim *v1.PersistentVolumeClaim,
	driver string) (*csi.VolumeContentSource, error) {
	from := claim.Spec.DataSource
	group := ""
	if from != nil && from.APIGroup != nil {
		group = *from.APIGroup
	}
	switch {
	case from == nil && claim.Spec.DataSourceRef == nil:
		return nil, nil
	case from == nil:
		return nil, status.Errorf(codes.InvalidArgument,
			"a %s is not a data source for driver %s: its populator makes the volume", claim.Spec.DataSourceRef.Kind, driver)
	case group == snapshotGroup && from.Kind == "VolumeSnapshot":
		id, err := c.snapshot(ctx, claim.Namespace, from.Name)
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}, nil
	case group == "" && from.Kind == "PersistentVolumeClaim":
		id, err := c.clone(ctx, claim.Namespace, from.Name, driver)
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}, nil
	}
	return nil, status.Errorf(codes.InvalidArgument, "a %s is not a data source for driver %s", from.Kind, driver)
}

// clone returns the handle of the volume of another claim in the same namespace, as the source of a
// new volume.
func (c *Controller) clone(ctx context.Context, namespace, name, driver string) (string, error) {
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	if claim.Status.Phase != v1.ClaimBound || claim.DeletionTimestamp != nil {
		return "", fmt.Errorf("source claim %s is not bound, or is being deleted", name)
	}
	v, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	if v.Spec.CSI == nil || v.Spec.CSI.Driver != driver || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return "", status.Errorf(codes.InvalidArgument, "source volume %s is not of driver %s", v.Name, driver)
	}
	return v.Spec.CSI.VolumeHandle, nil
}

// snapshot returns the driver's handle of a VolumeSnapshot that is ready to use. It decodes only
// the fields that it needs, because VolumeSnapshots are custom resources.
func (c *Controller) snapshot(ctx context.Context, namespace, name string) (string, error) {
	var s struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			ReadyToUse bool   `json:"readyToUse"`
			Content    string `json:"boundVolumeSnapshotContentName"`
		} `json:"status"`
	}
	if err := c.read(ctx, &s, "namespaces", namespace, "volumesnapshots", name); err != nil {
		return "", err
	}
	if !s.Status.ReadyToUse || s.Metadata.DeletionTimestamp != nil {
		return "", fmt.Errorf("snapshot %s is not ready, or is being deleted", name)
	}
	var content struct {
		Spec struct {
			Of struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"volumeSnapshotRef"`
		} `json:"spec"`
		Status struct {
			Handle string `json:"snapshotHandle"`
		} `json:"status"`
	}
	if err := c.read(ctx, &content, "volumesnapshotcontents", s.Status.Content); err != nil {
		return "", err
	}
	if content.Spec.Of.Namespace != namespace || content.Spec.Of.Name != name || content.Status.Handle == "" {
		return "", fmt.Errorf("snapshot %s is not bound to its content", name)
	}
	return content.Status.Handle, nil
}

func (c *Controller) read(ctx context.Context, into any, path ...string) error {
	b, err := c.Client.CoreV1().RESTClient().Get().AbsPath(append([]string{"/apis", snapshotGroup, "v1"},
		path...)...).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}
