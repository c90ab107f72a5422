// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

type condition = apiextensionsv1.CustomResourceDefinitionCondition

// decide returns a copy of crd with its new status, and reports whether the status changed. The
// argument by has the names that are granted to definitions of the group.
func decide(crd *apiextensionsv1.CustomResourceDefinition, by *taken,
	now metav1.Time) (next *apiextensionsv1.CustomResourceDefinition, changed bool) {
	next = crd.DeepCopy()
	decideApproval(next, now)
	decideNames(next, by, now)
	decideSchema(next, now)
	return next, !equality.Semantic.DeepEqual(next.Status, crd.Status)
}

// decideNames grants free names to crd. It sets the condition Established once crd has all its
// names. An established definition stays established.
func decideNames(crd *apiextensionsv1.CustomResourceDefinition, by *taken, now metav1.Time) {
	if !equality.Semantic.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames) ||
		apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted) == nil {
		names, cond := grant(crd, by)
		crd.Status.AcceptedNames = names
		set(crd, cond, now)
	}
	if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) {
		if apihelpers.FindCRDCondition(crd, apiextensionsv1.Established) == nil {
			set(crd, condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
				Reason: "NotAccepted", Message: "not all names are accepted"}, now)
		}
		return
	}
	if c := crd.Spec.Conversion; c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil &&
		len(webhook.ValidateCABundle(field.NewPath(""), c.Webhook.ClientConfig.CABundle)) > 0 {
		set(crd, condition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "InvalidCABundle", Message: "The conversion webhook CABundle is invalid",
		}, now)
		return
	}
	set(crd, condition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
		Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
	}, now)
}

// decideSchema sets the condition NonStructuralSchema, which reports schemas that are not
// structural.
func decideSchema(crd *apiextensionsv1.CustomResourceDefinition, now metav1.Time) {
	cond := schemaCondition(crd)
	if cond == nil {
		apihelpers.RemoveCRDCondition(crd, apiextensionsv1.NonStructuralSchema)
		return
	}
	set(crd, *cond, now)
}

func schemaCondition(crd *apiextensionsv1.CustomResourceDefinition) *condition {
	if !crd.Spec.PreserveUnknownFields {
		return nil // validation rejects schemas that are not structural in other definitions
	}
	cond := &condition{Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionUnknown}
	errs := field.ErrorList{field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false")}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		_, s, err := structuralOf(v.Schema)
		if err != nil {
			cond.Reason = "StructuralError"
			cond.Message = fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err)
			return cond
		}
		errs = append(errs, schema.ValidateStructural(field.NewPath("spec", "versions").Index(i).Child("schema",
			"openAPIV3Schema"), s)...)
	}
	cond.Status, cond.Reason, cond.Message = apiextensionsv1.ConditionTrue, "Violations", errs.ToAggregate().Error()
	return cond
}

// decideApproval sets the condition about approval, which CustomResourceDefinitions in groups of
// the Kubernetes community (*.k8s.io, *.kubernetes.io) need.
func decideApproval(crd *apiextensionsv1.CustomResourceDefinition, now metav1.Time) {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return
	}
	cond := condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse}
	state, reason := apihelpers.GetAPIApprovalState(crd.Annotations)
	switch cond.Message = reason; state {
	case apihelpers.APIApprovalInvalid:
		cond.Reason = "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		cond.Reason = "MissingAnnotation"
	case apihelpers.APIApproved:
		cond.Status, cond.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		cond.Reason = "UnapprovedAnnotation"
	default:
		cond.Status, cond.Reason = apiextensionsv1.ConditionUnknown, "UnknownAnnotation"
	}
	set(crd, cond, now)
}

// set sets a condition in the status of crd. The transition time changes only if the status of the
// condition changes.
func set(crd *apiextensionsv1.CustomResourceDefinition, cond condition, now metav1.Time) {
	cond.LastTransitionTime = now
	for i := range crd.Status.Conditions {
		old := &crd.Status.Conditions[i]
		if old.Type != cond.Type {
			continue
		}
		if old.Status == cond.Status {
			cond.LastTransitionTime = old.LastTransitionTime
		}
		*old = cond
		return
	}
	crd.Status.Conditions = append(crd.Status.Conditions, cond)
}
