// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
)

// genericWorkload is the feature gate of workloads and pod groups.
const genericWorkload = "GenericWorkload"

// workloadRow returns the row of the kind table for the resource workloads. It has the columns of
// kinds that declare none.
func workloadRow() *resource.Row {
	return resource.Of[schedulingv1beta1.WorkloadList](resource.Kind[*schedulingv1beta1.Workload]{
		Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "workloads", Kind: "Workload",
		Namespaced: true,
		Feature:    genericWorkload,
		Versions:   []resource.Version{{Name: "v1beta1", Introduced: 37}},

		PrepareCreate: func(_ context.Context, w *schedulingv1beta1.Workload) {
			dropTemplateFields(w, &schedulingv1beta1.Workload{})
		},
		PrepareUpdate:  func(_ context.Context, w, old *schedulingv1beta1.Workload) { dropTemplateFields(w, old) },
		Validate:       validateWorkload,
		ValidateUpdate: validateWorkloadUpdate,
	})
}

// dropTemplateFields clears the fields of features that are off, unless the workload that is
// replaced has them. As in Kubernetes, templates at the same index are compared.
func dropTemplateFields(w, old *schedulingv1beta1.Workload) {
	for i := range w.Spec.PodGroupTemplates {
		var was schedulingv1beta1.PodGroupTemplate
		if i < len(old.Spec.PodGroupTemplates) {
			was = old.Spec.PodGroupTemplates[i]
		}
		t := &w.Spec.PodGroupTemplates[i]
		dropUnlessUsed(&t.SchedulingConstraints, was.SchedulingConstraints)
		dropUnlessUsed(&t.PreemptionPolicy, was.PreemptionPolicy)
		if len(was.ResourceClaims) == 0 {
			t.ResourceClaims = nil
		}
	}
	if len(old.Spec.CompositePodGroupTemplates) == 0 {
		w.Spec.CompositePodGroupTemplates = nil
	}
}

func dropUnlessUsed[T any](field **T, old *T) {
	if old == nil {
		*field = nil
	}
}

func validateWorkload(_ context.Context, w *schedulingv1beta1.Workload) field.ErrorList {
	c, path := &check{}, field.NewPath("spec")
	c.checkSamePriority(path, w.Spec.PodGroupTemplates)
	c.checkTemplateLists(path, &w.Spec)
	if ref := w.Spec.ControllerRef; ref != nil {
		at := path.Child("controllerRef")
		if ref.APIGroup != "" {
			c.Subdomain(at.Child("apiGroup"), ref.APIGroup)
		}
		c.segmentName(at.Child("kind"), ref.Kind)
		c.segmentName(at.Child("name"), ref.Name)
	}
	at := path.Child("podGroupTemplates")
	if !c.checkTemplateCount(at, w.Spec.PodGroupTemplates) {
		return c.Errors
	}
	c.checkTemplateNames(at, w.Spec.PodGroupTemplates)
	for i := range w.Spec.PodGroupTemplates {
		c.checkTemplate(at.Index(i), &w.Spec.PodGroupTemplates[i])
	}
	return c.Errors
}

func validateWorkloadUpdate(_ context.Context, w, old *schedulingv1beta1.Workload) field.ErrorList {
	c, path := &check{}, field.NewPath("spec")
	c.checkSamePriority(path, w.Spec.PodGroupTemplates)
	if equal.Values(w.Spec, old.Spec) {
		return c.Errors
	}
	templates, were := w.Spec.PodGroupTemplates, old.Spec.PodGroupTemplates
	composites, wereComposites := w.Spec.CompositePodGroupTemplates, old.Spec.CompositePodGroupTemplates
	if (len(templates) == 0) != (len(were) == 0) || (len(composites) == 0) != (len(wereComposites) == 0) {
		c.checkTemplateLists(path, &w.Spec)
	}
	fixed(c, path.Child("controllerRef"), w.Spec.ControllerRef, old.Spec.ControllerRef)
	if !equal.Values(templates, were) {
		c.checkTemplateChanges(path.Child("podGroupTemplates"), templates, were)
	}
	if at := path.Child("compositePodGroupTemplates"); !equal.Values(composites, wereComposites) && len(composites) > 0 {
		c.Forbidden(at, "")
	}
	return c.Errors
}

// checkTemplateLists requires that exactly one of the two lists of templates is set.
func (c *check) checkTemplateLists(path *field.Path, spec *schedulingv1beta1.WorkloadSpec) {
	c.oneOf(path, member{"podGroupTemplates", len(spec.PodGroupTemplates) > 0},
		member{"compositePodGroupTemplates", len(spec.CompositePodGroupTemplates) > 0})
}

// checkSamePriority requires that all templates have the same priority.
func (c *check) checkSamePriority(path *field.Path, templates []schedulingv1beta1.PodGroupTemplate) {
	for i := range templates {
		first, t := &templates[0], &templates[i]
		if t.PriorityClassName != first.PriorityClassName || !equal.Values(t.Priority, first.Priority) {
			c.Invalid(path, nil, "detected multiple priority configurations")
			return
		}
	}
}

// checkTemplateCount reports whether there are few enough templates to check them one by one.
func (c *check) checkTemplateCount(path *field.Path, templates []schedulingv1beta1.PodGroupTemplate) bool {
	if n := len(templates); n > schedulingv1beta1.WorkloadMaxPodGroupTemplates {
		c.TooMany(path, n, schedulingv1beta1.WorkloadMaxPodGroupTemplates)
		return false
	}
	return true
}

func (c *check) checkTemplateNames(path *field.Path, templates []schedulingv1beta1.PodGroupTemplate) {
	seen := sets.New[string]()
	for i := range templates {
		if name := templates[i].Name; seen.Has(name) {
			c.Duplicate(path.Index(i), templates[i])
		}
		seen.Insert(templates[i].Name)
	}
}

func (c *check) checkTemplate(path *field.Path, t *schedulingv1beta1.PodGroupTemplate) {
	c.RequiredLabel(path.Child("name"), t.Name)
	c.checkPolicy(path.Child("schedulingPolicy"), &t.SchedulingPolicy)
	if t.DisruptionMode != nil {
		c.checkDisruption(path.Child("disruptionMode"), t.DisruptionMode)
	}
	c.checkPriority(path, t.PriorityClassName, t.Priority)
}

// checkTemplateChanges validates an update of templates. An update neither adds nor removes
// templates.
func (c *check) checkTemplateChanges(path *field.Path, templates, old []schedulingv1beta1.PodGroupTemplate) {
	same := c.checkTemplateCount(path, templates)
	for i := range templates {
		if templateNamed(old, templates[i].Name) == nil {
			c.Forbidden(path.Index(i), "item may not be added")
			same = false
		}
	}
	for i := range old {
		if templateNamed(templates, old[i].Name) == nil {
			c.Forbidden(path, "item may not be removed")
			same = false
		}
	}
	if !same {
		return
	}
	c.checkTemplateNames(path, templates)
	for i := range templates {
		c.checkTemplateChange(path.Index(i), &templates[i], templateNamed(old, templates[i].Name))
	}
}

func templateNamed(templates []schedulingv1beta1.PodGroupTemplate, name string) *schedulingv1beta1.PodGroupTemplate {
	i := slices.IndexFunc(templates, func(t schedulingv1beta1.PodGroupTemplate) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &templates[i]
}

func (c *check) checkTemplateChange(path *field.Path, t, old *schedulingv1beta1.PodGroupTemplate) {
	c.checkPolicyChange(path.Child("schedulingPolicy"), &t.SchedulingPolicy, &old.SchedulingPolicy)
	c.forbidChange(path.Child("schedulingConstraints"), t.SchedulingConstraints != nil,
		equal.Values(t.SchedulingConstraints, old.SchedulingConstraints))
	fixed(c, path.Child("schedulingConstraints"), t.SchedulingConstraints, old.SchedulingConstraints)
	fixed(c, path.Child("resourceClaims"), t.ResourceClaims, old.ResourceClaims)
	fixed(c, path.Child("disruptionMode"), t.DisruptionMode, old.DisruptionMode)
	fixed(c, path.Child("priorityClassName"), t.PriorityClassName, old.PriorityClassName)
	fixed(c, path.Child("priority"), t.Priority, old.Priority)
	c.forbidChange(path.Child("preemptionPolicy"), t.PreemptionPolicy != nil,
		equal.Values(t.PreemptionPolicy, old.PreemptionPolicy))
	fixed(c, path.Child("preemptionPolicy"), t.PreemptionPolicy, old.PreemptionPolicy)
}
