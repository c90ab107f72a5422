// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// resourceQuotaRow returns the row of the kind table for the resource resourcequotas.
func resourceQuotaRow() *resource.Row {
	parts := strategy.Parts[corev1.ResourceQuota, corev1.ResourceQuotaSpec,
		corev1.ResourceQuotaStatus](func(o *corev1.ResourceQuota) (*corev1.ResourceQuotaSpec, *corev1.ResourceQuotaStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.ResourceQuotaList](resource.Kind[*corev1.ResourceQuota]{
		Group: "", Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true,
		ShortNames: []string{"quota"},

		Default:                  defaultResourceQuota,
		PrepareCreate:            parts.ClearStatus,
		Validate:                 validateResourceQuota,
		PrepareUpdate:            parts.KeepStatus,
		ValidateUpdate:           validateResourceQuotaUpdate,
		Warnings:                 warnResourceQuota,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Request", Type: "string",
				Description: "Request represents a minimum amount of cpu/memory that a container may consume."},
			{Name: "Limit", Type: "string", Description: "Limits control the maximum amount of cpu/memory " +
				"that a container may use independent of contention on the node."},
			column.Age(),
		},
		Cells: resourceQuotaCells,

		Subresources: []resource.Sub[*corev1.ResourceQuota]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateResourceQuotaStatus},
		},
	})
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	podspec.Milli(q.Spec.Hard)
	podspec.Milli(q.Status.Hard)
	podspec.Milli(q.Status.Used)
}

func validateResourceQuota(_ context.Context, q *corev1.ResourceQuota) field.ErrorList {
	var r report.Report
	checkQuotaSpec(&r, &q.Spec, nil, field.NewPath("spec"))
	checkQuotaList(&r, q.Status.Hard, field.NewPath("status", "hard"))
	checkQuotaList(&r, q.Status.Used, field.NewPath("status", "used"))
	return r.Errors
}

// checkQuotaList checks the names and amounts of resources. If an amount is equal to the one in a
// list of stored, it is not checked, because older versions may have accepted it.
func checkQuotaList(r *report.Report, list corev1.ResourceList, path *field.Path, stored ...corev1.ResourceList) {
	for _, name := range report.Keys(list) {
		at := path.Key(string(name))
		errs := podspec.ValidateResourceName(name, at)
		r.Add(errs...)
		if podspec.Unqualified(name) && !podspec.CountsInQuota(name) {
			r.Invalid(at, name, "must be a standard resource for quota")
		}
		amount := list[name]
		kept := slices.ContainsFunc(stored, func(old corev1.ResourceList) bool {
			was, there := old[name]
			return there && was.Cmp(amount) == 0
		})
		if !kept {
			r.Add(podspec.ValidateQuantity(name, amount, at)...)
		}
	}
}

// checkQuotaSpec validates the spec of a quota. stored has the limits before an update; it is nil
// on create.
func checkQuotaSpec(r *report.Report, spec *corev1.ResourceQuotaSpec, stored corev1.ResourceList, path *field.Path) {
	checkQuotaList(r, spec.Hard, path.Child("hard"), stored)
	at := path.Child("scopes")
	for _, scope := range spec.Scopes {
		if !slices.Contains(quotaScopes(), scope) {
			r.Invalid(at, spec.Scopes, "unsupported scope")
		}
		for _, name := range report.Keys(spec.Hard) {
			if podspec.CountsInQuota(name) && !scopeApplies(scope, name) {
				r.Invalid(at, spec.Scopes, "unsupported scope applied to resource")
			}
		}
	}
	checkScopePairs(r, spec, sets.New(spec.Scopes...), at)
	if spec.ScopeSelector != nil {
		checkScopeSelector(r, spec, path.Child("scopeSelector", "matchExpressions"))
	}
}

func quotaScopes() []corev1.ResourceQuotaScope {
	return []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
	}
}

// scopeApplies reports whether a quota with this scope can limit the resource. It returns true for
// an unknown scope, because another check reports the scope.
func scopeApplies(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	computing := slices.Contains([]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	}, name)
	switch {
	case !slices.Contains(quotaScopes(), scope):
		return true
	case scope == corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	default:
		return name == corev1.ResourcePods || computing
	}
}

func checkScopePairs(r *report.Report, spec *corev1.ResourceQuotaSpec,
	scopes sets.Set[corev1.ResourceQuotaScope], path *field.Path) {
	if scopes.HasAll(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) {
		r.Invalid(path, spec.Scopes, "conflicting scopes")
	}
	if scopes.HasAll(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating) {
		r.Invalid(path, spec.Scopes, "conflicting scopes")
	}
}

func checkScopeSelector(r *report.Report, spec *corev1.ResourceQuotaSpec, path *field.Path) {
	scopes := sets.New[corev1.ResourceQuotaScope]()
	for _, q := range spec.ScopeSelector.MatchExpressions {
		scopes.Insert(q.ScopeName)
		if !slices.Contains(quotaScopes(), q.ScopeName) {
			r.Invalid(path.Child("scopeName"), q.ScopeName, "unsupported scope")
		}
		for _, name := range report.Keys(spec.Hard) {
			if podspec.CountsInQuota(name) && !scopeApplies(q.ScopeName, name) {
				r.Invalid(path, spec.ScopeSelector, "unsupported scope applied to resource")
			}
		}
		named := q.ScopeName == corev1.ResourceQuotaScopePriorityClass ||
			q.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
		if slices.Contains(quotaScopes(), q.ScopeName) && !named && q.Operator != corev1.ScopeSelectorOpExists {
			r.Invalid(path.Child("operator"), q.Operator,
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "+
					"ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "+
					"ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
		}
		switch q.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(q.Values) == 0 {
				r.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(q.Values) > 0 {
				r.Invalid(path.Child("values"), q.Values,
					"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			r.Invalid(path.Child("operator"), q.Operator, "not a valid selector operator")
		}
	}
	checkScopePairs(r, spec, scopes, path)
}

func validateResourceQuotaUpdate(_ context.Context, q, old *corev1.ResourceQuota) field.ErrorList {
	var r report.Report
	checkQuotaSpec(&r, &q.Spec, old.Spec.Hard, field.NewPath("spec"))
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		r.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg)
	}
	return r.Errors
}

func validateResourceQuotaStatus(_ context.Context, q, old *corev1.ResourceQuota) field.ErrorList {
	var r report.Report
	checkQuotaList(&r, q.Status.Hard, field.NewPath("status", "hard"), old.Status.Hard, old.Spec.Hard)
	checkQuotaList(&r, q.Status.Used, field.NewPath("status", "used"), old.Status.Used)
	return r.Errors
}

// warnResourceQuota warns about new quotas whose limit for requests is higher than the one for
// limits.
func warnResourceQuota(_ context.Context, q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		asked, used := "requests."+name, "limits."+name
		request, there := q.Spec.Hard[asked]
		if !there && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			if request, there = q.Spec.Hard[name]; there {
				asked = name
			}
		}
		limit, limited := q.Spec.Hard[used]
		if there && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", asked,
				request.String(), used, limit.String()))
		}
	}
	return warnings
}

func resourceQuotaCells(q *corev1.ResourceQuota, env resource.CellEnv) []any {
	names := make([]string, 0, len(q.Status.Hard))
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), env.Age(q.CreationTimestamp)}
}
