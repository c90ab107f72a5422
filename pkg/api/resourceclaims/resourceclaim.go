// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// resourceClaimRow returns the row of the kind table for the resource resourceclaims.
func resourceClaimRow(guard Guard) *resource.Row {
	parts := strategy.Parts[resourcev1.ResourceClaim, resourcev1.ResourceClaimSpec,
		resourcev1.ResourceClaimStatus](func(o *resourcev1.ResourceClaim) (*resourcev1.ResourceClaimSpec,
		*resourcev1.ResourceClaimStatus) {
		return &o.Spec, &o.Status
	})
	validate, validateStatus := validateClaim, validateClaimStatus
	if guard != nil {
		validate = func(ctx context.Context, c *resourcev1.ResourceClaim) field.ErrorList {
			return append(guard.CheckRequests(ctx, c.Namespace, c.Spec.Devices.Requests), validateClaim(ctx, c)...)
		}
		validateStatus = func(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
			return append(guard.CheckStatus(ctx, c, old), validateClaimStatus(ctx, c, old)...)
		}
	}
	return resource.Of[resourcev1.ResourceClaimList](resource.Kind[*resourcev1.ResourceClaim]{
		Group: "resource.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, claimVersions()...), Resource: "resourceclaims",
		Kind: "ResourceClaim", Namespaced: true,
		Gated: []resource.Gated[*resourcev1.ResourceClaim]{
			{Feature: "DRADerivedAttributes",
				Visit: func(c *resourcev1.ResourceClaim, drop bool) bool { return visitDerived(&c.Spec, drop) }},
			{Feature: "DRAOptionalNodeOperations", Visit: visitSkipped},
		},

		Default:                  defaultResourceClaim,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            parts.ClearStatus,
		PrepareUpdate:            parts.KeepStatus,
		Validate:                 validate,
		ValidateUpdate:           validateClaimUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "State", Type: "string", Description: "A summary of the current state (allocated, pending, reserved, etc.)."},
			column.Age(),
		},
		Cells: resourceClaimCells,

		Subresources: []resource.Sub[*resourcev1.ResourceClaim]{
			{Subresource: strategy.View("status", "spec", "metadata").WithoutTable(),
				PrepareUpdate: func(ctx context.Context, c, old *resourcev1.ResourceClaim) {
					parts.KeepSpecAndMeta(ctx, c, old)
					dropFreed(c, old)
				}, ValidateUpdate: validateStatus},
		},
	})
}

// resourceClaimTemplateRow returns the row of the kind table for the resource
// resourceclaimtemplates.
func resourceClaimTemplateRow(guard Guard) *resource.Row {
	validate := validateTemplate
	if guard != nil {
		validate = func(ctx context.Context, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return append(guard.CheckRequests(ctx, t.Namespace, t.Spec.Spec.Devices.Requests), validateTemplate(ctx, t)...)
		}
	}
	return resource.Of[resourcev1.ResourceClaimTemplateList](resource.Kind[*resourcev1.ResourceClaimTemplate]{
		Group: "resource.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, templateVersions()...),
		Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate", Namespaced: true,
		Gated: []resource.Gated[*resourcev1.ResourceClaimTemplate]{{Feature: "DRADerivedAttributes",
			Visit: func(t *resourcev1.ResourceClaimTemplate, drop bool) bool { return visitDerived(&t.Spec.Spec, drop) }}},

		Default:                  defaultResourceClaimTemplate,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validate,
		ValidateUpdate:           validateTemplateUpdate,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			column.Age(),
		},
		Cells: resourceClaimTemplateCells,
	})
}

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultDevices(&c.Spec.Devices)
	if c.Status.Allocation == nil {
		return
	}
	for i := range c.Status.Allocation.Devices.Results {
		defaultTolerations(c.Status.Allocation.Devices.Results[i].Tolerations)
	}
}

func defaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultDevices(&t.Spec.Spec.Devices)
}

func defaultDevices(d *resourcev1.DeviceClaim) {
	for i := range d.Requests {
		request := &d.Requests[i]
		if exact := request.Exactly; exact != nil {
			unset.Fill(&exact.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
			if exact.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				unset.Fill(&exact.Count, 1)
			}
			defaultTolerations(exact.Tolerations)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			unset.Fill(&sub.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
			if sub.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				unset.Fill(&sub.Count, 1)
			}
			defaultTolerations(sub.Tolerations)
		}
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		unset.Fill(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// visitDerived reports whether a request has derived attributes. If drop is true, it clears them.
func visitDerived(spec *resourcev1.ResourceClaimSpec, drop bool) (found bool) {
	visit := func(attributes *[]resourcev1.DeviceDerivedAttribute) {
		found = found || len(*attributes) > 0
		if drop {
			*attributes = nil
		}
	}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil {
			visit(&request.Exactly.DerivedAttributes)
		}
		for j := range request.FirstAvailable {
			visit(&request.FirstAvailable[j].DerivedAttributes)
		}
	}
	return found
}

// visitSkipped reports whether nodes skip operations for allocated devices. If drop is true, it clears the
// skipped operations.
func visitSkipped(c *resourcev1.ResourceClaim, drop bool) (found bool) {
	if c.Status.Allocation == nil {
		return false
	}
	for i := range c.Status.Allocation.Devices.Results {
		result := &c.Status.Allocation.Devices.Results[i]
		found = found || len(result.SkipNodeOperations) > 0
		if drop {
			result.SkipNodeOperations = nil
		}
	}
	return found
}

// dropFreed removes from the status those devices that the update deallocates. So a client that
// deallocates a device need not know which drivers have reported a status for it.
func dropFreed(c, old *resourcev1.ResourceClaim) {
	if c.Status.Allocation == nil && old.Status.Allocation != nil {
		c.Status.Devices = nil
		return
	}
	freed := allocatedDevices(&old.Status).Difference(allocatedDevices(&c.Status))
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool {
		return freed.Has(statusID(&d))
	})
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}

func validateTemplate(_ context.Context, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	r.TemplateMeta(path.Child("metadata"), &t.Spec.ObjectMeta)
	checkClaim(&r, path.Child("spec", "devices"), &t.Spec.Spec.Devices)
	return r.Errors
}

func validateTemplateUpdate(ctx context.Context, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	r := report.Report{Errors: validateTemplate(ctx, t)}
	if !equality.Semantic.DeepEqual(t.Spec, old.Spec) {
		r.Invalid(field.NewPath("spec"), t.Spec, apivalidation.FieldImmutableErrorMsg)
	}
	return r.Errors
}

func resourceClaimCells(c *resourcev1.ResourceClaim, env resource.CellEnv) []any {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	if c.Status.Allocation != nil {
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	} else if c.DeletionTimestamp == nil {
		states = append(states, "pending")
	}
	return []any{c.Name, strings.Join(states, ","), env.Age(c.CreationTimestamp)}
}

func resourceClaimTemplateCells(o *resourcev1.ResourceClaimTemplate, env resource.CellEnv) []any {
	return []any{o.Name, env.Age(o.CreationTimestamp)}
}
