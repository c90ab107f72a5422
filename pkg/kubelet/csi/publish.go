// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// nodeIDs is the annotation of a Node that contains, for each driver, the driver's ID of the node.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// publish writes a driver's data about the node to the Node and the CSINode. The caller holds
// publishing.
func (m *Manager) publish(ctx context.Context, name string, info *csi.NodeGetInfoResponse) error {
	if info.GetNodeId() == "" {
		return fmt.Errorf("driver %s returned no node ID", name)
	}
	segments := info.GetAccessibleTopology().GetSegments()
	if err := m.label(ctx, segments, func(ids map[string]string) { ids[name] = info.GetNodeId() }); err != nil {
		return err
	}
	want := storagev1.CSINodeDriver{Name: name, NodeID: info.GetNodeId(), TopologyKeys: slices.Sorted(maps.Keys(segments))}
	if n := info.GetMaxVolumesPerNode(); n > 0 {
		want.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(int32(min(n, 1<<31-1)))}
	}
	return m.csiNode(ctx, func(n *storagev1.CSINode) {
		n.Spec.Drivers = slices.DeleteFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
		n.Spec.Drivers = append(n.Spec.Drivers, want)
		slices.SortFunc(n.Spec.Drivers, func(a, b storagev1.CSINodeDriver) int { return strings.Compare(a.Name, b.Name) })
	})
}

// withdraw removes the data of unregistered drivers from the Node and the CSINode.
func (m *Manager) withdraw(ctx context.Context) error {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	m.mu.Lock()
	maps.DeleteFunc(m.gone, func(name string, _ bool) bool { return m.drivers[name] != nil })
	gone := maps.Clone(m.gone)
	m.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	err := m.csiNode(ctx, func(n *storagev1.CSINode) {
		n.Spec.Drivers = slices.DeleteFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return gone[d.Name] })
	})
	if err != nil {
		return err
	}
	err = m.label(ctx, nil, func(ids map[string]string) {
		maps.DeleteFunc(ids, func(name, _ string) bool { return gone[name] })
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.gone, func(name string, _ bool) bool { return gone[name] })
	return nil
}

// label writes topology labels to the Node, and applies change to the drivers' IDs of the node in
// its annotation.
func (m *Manager) label(ctx context.Context, segments map[string]string, change func(ids map[string]string)) error {
	node, err := m.cfg.Client.CoreV1().Nodes().Get(ctx, m.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	for k, v := range segments {
		if old, there := node.Labels[k]; there && old != v {
			return fmt.Errorf(
				"detected topology value collision: driver reported %q:%q but existing label is %q:%q", k, v, k, old)
		}
	}
	patch, err := labelPatch(node, segments, change)
	if err != nil || patch == nil {
		return err
	}
	if _, err := m.cfg.Client.CoreV1().Nodes().Patch(ctx, m.cfg.NodeName, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label the node: %w", err)
	}
	return nil
}

// labelPatch returns the patch for the Node, or nil if nothing changes.
func labelPatch(node *v1.Node, segments map[string]string, change func(ids map[string]string)) ([]byte, error) {
	ids := map[string]string{}
	if text := node.Annotations[nodeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", nodeIDs, err)
		}
	}
	before := maps.Clone(ids)
	change(ids)
	meta := map[string]any{}
	if !maps.Equal(before, ids) {
		var text any // nil removes the annotation
		if len(ids) > 0 {
			b, err := json.Marshal(ids)
			if err != nil {
				return nil, fmt.Errorf("annotation %s: %w", nodeIDs, err)
			}
			text = string(b)
		}
		meta["annotations"] = map[string]any{nodeIDs: text}
	}
	labels := maps.Clone(segments)
	maps.DeleteFunc(labels, func(k, v string) bool { return node.Labels[k] == v })
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(meta) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": meta})
}

// csiNode applies change to the node's CSINode. It creates the CSINode if necessary.
func (m *Manager) csiNode(ctx context.Context, change func(*storagev1.CSINode)) error {
	nodes := m.cfg.Client.StorageV1().CSINodes()
	// Run creates the CSINode when the kubelet starts, while drivers register.
	repeat := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultBackoff, repeat, func() error {
		old, err := nodes.Get(ctx, m.cfg.NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			fresh, err := m.newCSINode(ctx)
			if err != nil {
				return err
			}
			change(fresh)
			_, err = nodes.Create(ctx, fresh, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		want := old.DeepCopy()
		change(want)
		if equality.Semantic.DeepEqual(old, want) {
			return nil
		}
		_, err = nodes.Update(ctx, want, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("CSINode: %w", err)
	}
	return nil
}

func (m *Manager) newCSINode(ctx context.Context) (*storagev1.CSINode, error) {
	node, err := m.cfg.Client.CoreV1().Nodes().Get(ctx, m.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("its node: %w", err)
	}
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            node.Name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}, nil
}
