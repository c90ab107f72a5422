// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// csiNodeRow returns the row of the kind table for the resource csinodes.
func csiNodeRow() *resource.Row {
	parts := strategy.Parts[storagev1.CSINode, storagev1.CSINodeSpec, storagev1.CSINodeStatus](
		func(n *storagev1.CSINode) (*storagev1.CSINodeSpec, *storagev1.CSINodeStatus) {
			return &n.Spec, &n.Status
		})
	return resource.Of[storagev1.CSINodeList](resource.Kind[*storagev1.CSINode]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csinodes", Kind: "CSINode",

		ReturnDeleted: true,
		MetaOnUpdate:  resource.CheckNameAndFinalizers,
		// The gate of the only field of the status is off by default.
		PrepareCreate:  parts.ClearStatus,
		PrepareUpdate:  parts.KeepStatus,
		ResetFields:    []string{"status"},
		Validate:       validateCSINode,
		ValidateUpdate: validateCSINodeUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Drivers", Type: "integer",
				Description: "Drivers indicates the number of CSI drivers registered on the node"},
			column.Age(),
		},
		Cells: csiNodeCells,

		Subresources: []resource.Sub[*storagev1.CSINode]{
			{Subresource: strategy.View("status", "metadata", "spec"),
				PrepareUpdate: func(ctx context.Context, n, old *storagev1.CSINode) {
					parts.KeepSpecAndMeta(ctx, n, old)
					if len(old.Status.StorageHealth) == 0 {
						n.Status.StorageHealth = nil
					}
				}},
		},
	})
}

func validateCSINode(_ context.Context, n *storagev1.CSINode) field.ErrorList {
	r, path, names := &report.Report{}, field.NewPath("spec", "drivers"), sets.New[string]()
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], path.Index(i)
		driverName(r, at.Child("name"), d.Name)
		if d.NodeID == "" {
			r.Required(at.Child("nodeID"), "")
		}
		if len(d.NodeID) > maxNodeID {
			r.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID))
		}
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			r.NotNegative(at.Child("allocatable", "count"), int64(*d.Allocatable.Count))
		}
		if names.Has(d.Name) {
			r.Duplicate(at.Child("name"), d.Name)
		}
		names.Insert(d.Name)
		topologyKeys(r, at, d.TopologyKeys)
	}
	return r.Errors
}

// topologyKeys reports empty, repeated and invalid keys. As in Kubernetes, path is that of the
// driver's list of keys, without an index.
func topologyKeys(r *report.Report, path *field.Path, keys []string) {
	seen := sets.New[string]()
	for _, key := range keys {
		if key == "" {
			r.Required(path, "")
		}
		if seen.Has(key) {
			r.Duplicate(path, key)
		}
		seen.Insert(key)
		r.QualifiedName(path, key)
	}
}

// validateCSINodeUpdate rejects changes of a driver that the stored node has, except for the number
// of volumes that can be attached.
func validateCSINodeUpdate(ctx context.Context, n, old *storagev1.CSINode) field.ErrorList {
	r := &report.Report{Errors: validateCSINode(ctx, n)}
	for i := range old.Spec.Drivers {
		for j := range n.Spec.Drivers {
			if old.Spec.Drivers[i].Name != n.Spec.Drivers[j].Name {
				continue
			}
			was, is := old.Spec.Drivers[i].DeepCopy(), n.Spec.Drivers[j].DeepCopy()
			was.Allocatable, is.Allocatable = nil, nil
			r.Immutable(field.NewPath("spec", "drivers"), is, was)
		}
	}
	return r.Errors
}

func csiNodeCells(n *storagev1.CSINode, env resource.CellEnv) []any {
	return []any{n.Name, int64(len(n.Spec.Drivers)), env.Age(n.CreationTimestamp)}
}
