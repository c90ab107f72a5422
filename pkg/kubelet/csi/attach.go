// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	firstPoll, lastPoll = 50 * time.Millisecond, time.Second
	// attachPatience is how long the kubelet waits for a volume to be attached before it reports an
	// error.
	attachPatience = 30 * time.Second
)

// object returns the CSIDriver object of a driver, or nil if it does not exist.
func (m *Manager) object(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	d, err := m.cfg.Client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("CSIDriver: %w", err)
	}
	return d, nil
}

func attachRequired(d *storagev1.CSIDriver) bool {
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// awaitAttached waits until the volume is attached to the node and the API lists it as in use. It
// returns the metadata that the attachment provides for mounting the volume.
func (m *Manager) awaitAttached(ctx context.Context, i id) (map[string]string, error) {
	deadline := m.cfg.Clock.Now().Add(attachPatience)
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		metadata, err := m.attached(ctx, i)
		if err == nil || m.cfg.Clock.Now().After(deadline) {
			return metadata, err
		}
		t := m.cfg.Clock.NewTimer(poll)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-t.C():
		}
	}
}

// attached returns the metadata of the volume's attachment, or an error that explains why the
// volume cannot be used yet.
//
// The order of the checks is important, because a controller may detach the volume at any time.
// Once the API lists the volume as in use, no controller begins to detach it. If the API lists the
// volume as attached after that, no controller had begun to detach it before either.
func (m *Manager) attached(ctx context.Context, i id) (map[string]string, error) {
	node, err := m.cfg.Client.CoreV1().Nodes().Get(ctx, m.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("volume %s: node: %w", i.handle, err)
	}
	name := v1.UniqueVolumeName(i.String())
	if !slices.Contains(node.Status.VolumesInUse, name) {
		m.cfg.Changed()
		return nil, fmt.Errorf("volume %s is not yet reported to be in use", i.handle)
	}
	listed := slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name })
	attachment, err := m.cfg.Client.StorageV1().VolumeAttachments().Get(ctx,
		AttachmentName(i.handle, i.driver, m.cfg.NodeName), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("volume %s is not attached: there is no VolumeAttachment yet", i.handle)
	case err != nil:
		return nil, fmt.Errorf("volume %s has GET error for volume attachment: %w", i.handle, err)
	case attachment.DeletionTimestamp != nil:
		return nil, errors.New("volume attachment is being deleted")
	case !attachment.Status.Attached && attachment.Status.AttachError != nil && exhausted(attachment.Status.AttachError):
		return nil, &LimitError{Volume: i.handle, Message: attachment.Status.AttachError.Message}
	case !attachment.Status.Attached && attachment.Status.AttachError != nil:
		return nil, errors.New(attachment.Status.AttachError.Message)
	case !attachment.Status.Attached || !listed:
		return nil, fmt.Errorf("volume %s is not attached for volume attachment %s", i.handle, attachment.Name)
	}
	return attachment.Status.AttachmentMetadata, nil
}
