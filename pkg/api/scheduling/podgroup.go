// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// podGroupRow returns the row of the kind table for the resource podgroups.
func podGroupRow() *resource.Row {
	parts := strategy.Parts[schedulingv1beta1.PodGroup, schedulingv1beta1.PodGroupSpec, schedulingv1beta1.PodGroupStatus](
		func(g *schedulingv1beta1.PodGroup) (*schedulingv1beta1.PodGroupSpec, *schedulingv1beta1.PodGroupStatus) {
			return &g.Spec, &g.Status
		})
	return resource.Of[schedulingv1beta1.PodGroupList](resource.Kind[*schedulingv1beta1.PodGroup]{
		Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups", Kind: "PodGroup",
		Namespaced: true,
		Feature:    genericWorkload,
		Versions:   []resource.Version{{Name: "v1beta1", Introduced: 37}},

		Default: defaultPodGroup,
		PrepareCreate: func(ctx context.Context, g *schedulingv1beta1.PodGroup) {
			parts.ClearStatus(ctx, g)
			dropGroupFields(&g.Spec, &schedulingv1beta1.PodGroupSpec{})
		},
		PrepareUpdate: func(ctx context.Context, g, old *schedulingv1beta1.PodGroup) {
			parts.KeepStatus(ctx, g, old)
			dropGroupFields(&g.Spec, &old.Spec)
		},
		ResetFields:    []string{"status"},
		Validate:       validatePodGroup,
		ValidateUpdate: validatePodGroupUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Policy", Type: "string", Description: schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]},
			{Name: "Workload", Type: "string", Description: "Name of the referenced Workload object"},
			{Name: "Status", Type: "string", Description: "Status of the PodGroup"},
			column.Age(),
		},
		Cells: podGroupCells,

		Subresources: []resource.Sub[*schedulingv1beta1.PodGroup]{{
			Subresource: strategy.View("status", "metadata", "spec"),
			PrepareUpdate: func(ctx context.Context, g, old *schedulingv1beta1.PodGroup) {
				parts.KeepSpecAndMeta(ctx, g, old)
				if len(old.Spec.ResourceClaims) == 0 {
					g.Status.ResourceClaimStatuses = nil
				}
			},
			ValidateUpdate: validatePodGroupStatus,
		}},
	})
}

func defaultPodGroup(g *schedulingv1beta1.PodGroup) {
	unset.Point(&g.Spec.DisruptionMode, schedulingv1beta1.DisruptionMode{
		Single: &schedulingv1beta1.SingleDisruptionMode{}})
}

// dropGroupFields clears the fields of features that are off, unless the group that is replaced has
// them.
func dropGroupFields(spec, old *schedulingv1beta1.PodGroupSpec) {
	dropUnlessUsed(&spec.SchedulingConstraints, old.SchedulingConstraints)
	dropUnlessUsed(&spec.PreemptionPolicy, old.PreemptionPolicy)
	dropUnlessUsed(&spec.ParentCompositePodGroupName, old.ParentCompositePodGroupName)
	if len(old.ResourceClaims) == 0 {
		spec.ResourceClaims = nil
	}
}

func podGroupCells(g *schedulingv1beta1.PodGroup, env resource.CellEnv) []any {
	policy, workload, status := "Basic", column.None, "Pending"
	if g.Spec.SchedulingPolicy.Gang != nil {
		policy = "Gang"
	}
	if ref := g.Spec.WorkloadRef; ref != nil {
		workload = ref.WorkloadName
	}
	if meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled) != nil {
		status = "Unschedulable"
		if meta.IsStatusConditionTrue(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled) {
			status = "Scheduled"
		}
	}
	if c := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.DisruptionTarget); c != nil {
		status = c.Reason
	}
	return []any{g.Name, policy, workload, status, env.Age(g.CreationTimestamp)}
}

func validatePodGroup(_ context.Context, g *schedulingv1beta1.PodGroup) field.ErrorList {
	c, path := &check{}, field.NewPath("spec")
	if ref := g.Spec.WorkloadRef; ref != nil {
		at := path.Child("workloadRef")
		if name := at.Child("workloadName"); ref.WorkloadName == "" {
			c.Required(name, "")
		} else {
			c.Subdomain(name, ref.WorkloadName)
		}
		c.RequiredLabel(at.Child("templateName"), ref.TemplateName)
	}
	c.checkPolicy(path.Child("schedulingPolicy"), &g.Spec.SchedulingPolicy)
	if at := path.Child("disruptionMode"); g.Spec.DisruptionMode == nil {
		c.Required(at, "")
	} else {
		c.checkDisruption(at, g.Spec.DisruptionMode)
	}
	c.checkPriority(path, g.Spec.PriorityClassName, g.Spec.Priority)
	return c.Errors
}

func validatePodGroupUpdate(_ context.Context, g, old *schedulingv1beta1.PodGroup) field.ErrorList {
	c, path, s, was := &check{}, field.NewPath("spec"), &g.Spec, &old.Spec
	c.forbidChange(path.Child("parentCompositePodGroupName"), s.ParentCompositePodGroupName != nil,
		equal.Values(s.ParentCompositePodGroupName, was.ParentCompositePodGroupName))
	fixed(c, path.Child("parentCompositePodGroupName"), s.ParentCompositePodGroupName, was.ParentCompositePodGroupName)
	fixed(c, path.Child("workloadRef"), s.WorkloadRef, was.WorkloadRef)
	c.checkPolicyChange(path.Child("schedulingPolicy"), &s.SchedulingPolicy, &was.SchedulingPolicy)
	c.forbidChange(path.Child("schedulingConstraints"), s.SchedulingConstraints != nil,
		equal.Values(s.SchedulingConstraints, was.SchedulingConstraints))
	fixed(c, path.Child("resourceClaims"), s.ResourceClaims, was.ResourceClaims)
	fixed(c, path.Child("disruptionMode"), s.DisruptionMode, was.DisruptionMode)
	fixed(c, path.Child("priorityClassName"), s.PriorityClassName, was.PriorityClassName)
	fixed(c, path.Child("priority"), s.Priority, was.Priority)
	c.forbidChange(path.Child("preemptionPolicy"), s.PreemptionPolicy != nil,
		equal.Values(s.PreemptionPolicy, was.PreemptionPolicy))
	fixed(c, path.Child("preemptionPolicy"), s.PreemptionPolicy, was.PreemptionPolicy)
	return c.Errors
}

func validatePodGroupStatus(_ context.Context, g, _ *schedulingv1beta1.PodGroup) field.ErrorList {
	return metav1validation.ValidateConditions(g.Status.Conditions, field.NewPath("status", "conditions"))
}
