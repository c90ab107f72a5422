// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// resourceSliceRow returns the row of the kind table for the resource resourceslices.
func resourceSliceRow() *resource.Row {
	return resource.Of[resourcev1.ResourceSliceList](resource.Kind[*resourcev1.ResourceSlice]{
		Group: "resource.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, sliceVersions()...), Resource: "resourceslices",
		Kind: "ResourceSlice",

		PrepareCreate:            prepareSlice,
		PrepareUpdate:            prepareSliceUpdate,
		Validate:                 validateSlice,
		ValidateUpdate:           validateSliceUpdate,
		Warnings:                 warnSlice,
		Fields:                   resourceSliceFields,
		SelectableFields:         []string{"spec.nodeName", "spec.driver", resourcev1.ResourceSliceSelectorPoolName},
		UnknownField:             "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %[1]s",
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Node", Type: "string", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["nodeName"]},
			{Name: "Driver", Type: "string", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["driver"]},
			{Name: "Pool", Type: "string", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"]},
			column.Age(),
		},
		Cells: resourceSliceCells,
	})
}

func resourceSliceFields(s *resourcev1.ResourceSlice) fields.Set {
	nodeName := ""
	if s.Spec.NodeName != nil {
		nodeName = *s.Spec.NodeName
	}
	return fields.Set{
		"spec.nodeName": nodeName, "spec.driver": s.Spec.Driver,
		resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name,
	}
}

func prepareSlice(ctx context.Context, s *resourcev1.ResourceSlice) {
	dropAlpha(s)
	stampTaints(ctx, s)
	strategy.StartGeneration(ctx, s)
}

func prepareSliceUpdate(ctx context.Context, s, old *resourcev1.ResourceSlice) {
	stampTaints(ctx, s)
	// The generation counts every change that a client sends, even if dropAlpha then removes the
	// change.
	same := equality.Semantic.DeepEqual(s.Spec, old.Spec)
	dropAlpha(s)
	strategy.Count(s, old, same)
}

// dropAlpha clears the fields of alpha features. The server does not have these features.
func dropAlpha(s *resourcev1.ResourceSlice) {
	s.Spec.PartitionTypeAttribute, s.Spec.SkipNodeOperations = nil, nil
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		d.NodeAllocatableResources = nil
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

// stampTaints sets the time of taints without a time to the time of the request.
func stampTaints(ctx context.Context, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			stampTaint(ctx, &s.Spec.Devices[i].Taints[j])
		}
	}
}

// stampTaint sets the time of a taint without a time to the time of the request.
func stampTaint(ctx context.Context, t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		now := resource.Time(ctx)
		t.TimeAdded = new(now.Rfc3339Copy())
	}
}

// warnSlice warns about a driver name that has upper case letters.
func warnSlice(_ context.Context, s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf(
		"spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}

func resourceSliceCells(s *resourcev1.ResourceSlice, env resource.CellEnv) []any {
	return []any{s.Name, column.Deref(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name, env.Age(s.CreationTimestamp)}
}
