// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// namespaceRow returns the row of the kind table for the resource namespaces.
func namespaceRow() *resource.Row {
	parts := strategy.Parts[corev1.Namespace, corev1.NamespaceSpec,
		corev1.NamespaceStatus](func(o *corev1.Namespace) (*corev1.NamespaceSpec, *corev1.NamespaceStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.NamespaceList](resource.Kind[*corev1.Namespace]{
		Group: "", Version: "v1", Resource: "namespaces", Kind: "Namespace", NamespaceItself: true,
		ShortNames: []string{"ns"},
		Verbs:      []string{"create", "delete", "get", "list", "patch", "update", "watch"},

		Default:                  defaultNamespace,
		DefaultsChanged:          true, // the label with the name is from 1.21
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            prepareNamespaceCreate,
		Validate:                 validateNamespace,
		PrepareUpdate:            prepareNamespaceUpdate,
		Canonicalize:             canonicalizeNamespace,
		Hooks:                    namespaceHooks(),
		ValidateName:             nameNamespace,
		Fields:                   namespaceFields,
		FieldPaths:               []string{"status.phase"},
		SelectableFields:         []string{"status.phase"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "The status of the namespace"},
			column.Age(),
		},
		Cells: namespaceCells,

		Subresources: []resource.Sub[*corev1.Namespace]{
			{Subresource: resource.Subresource{Name: "finalize", Verbs: []string{"update"}, View: true,
				ResetFields: []string{"status"}}.WithoutTable(), PrepareUpdate: parts.KeepStatus,
				ValidateUpdate: validateNamespaceFinalize},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateNamespaceStatus},
		},
	})
}

// A namespace's name must be a DNS label, because it becomes a part of host names. The names of most
// other kinds only have to be DNS subdomains.

func nameNamespace(name string, prefix bool) []string { return naming.NameIsDNSLabel(name, prefix) }

// defaultNamespace labels a namespace with its name. If the name is still to be generated,
// canonicalizeNamespace sets the label later.
func defaultNamespace(ns *corev1.Namespace) {
	if ns.Name != "" {
		labelNamespace(ns)
	}
	unset.Fill(&ns.Status.Phase, corev1.NamespaceActive)
}

func labelNamespace(ns *corev1.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func prepareNamespaceCreate(_ context.Context, ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func prepareNamespaceUpdate(_ context.Context, ns, old *corev1.Namespace) {
	ns.Spec.Finalizers = old.Spec.Finalizers
	ns.Status = old.Status
}

func canonicalizeNamespace(ns *corev1.Namespace) { labelNamespace(ns) }

// namespaceHooks returns hooks that keep a deleted namespace in phase Terminating while
// spec.finalizers has items. A component removes its item when it has deleted its part of the
// namespace's contents.
func namespaceHooks() resource.Hooks[*corev1.Namespace] {
	return resource.Hooks[*corev1.Namespace]{
		BeforeDelete: beforeNamespace,
		Ending: func(_ context.Context, ns *corev1.Namespace) bool {
			// The phase also changes if spec.finalizers is empty and only metadata.finalizers
			// delays the deletion.
			ns.Status.Phase = corev1.NamespaceTerminating
			if len(ns.Spec.Finalizers) == 0 {
				return false
			}
			ns.DeletionGracePeriodSeconds = nil
			return true
		},
		KeepOnUpdate: func(ns, _ *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
	}
}

// beforeNamespace checks the preconditions of a delete and makes the namespace's UID one of them.
// If the namespace is already terminating, it returns ErrBeingDeleted. If the client sets
// orphanDependents to false, dependents are deleted before the namespace. For other kinds, this
// option deletes dependents after their owner.
func beforeNamespace(_ context.Context, ns *corev1.Namespace, options *metav1.DeleteOptions) error {
	if err := expectedNamespace(ns, options); err != nil {
		return err
	}
	if p := options.Preconditions; p == nil {
		options.Preconditions = &metav1.Preconditions{UID: new(ns.GetUID())}
	} else if p.UID == nil {
		options.Preconditions = &metav1.Preconditions{UID: new(ns.GetUID()), ResourceVersion: p.ResourceVersion}
	}
	if ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
		return resource.ErrBeingDeleted
	}
	if orphan := options.OrphanDependents; orphan != nil && !*orphan { // clients can still send this deprecated field
		foreground := metav1.DeletePropagationForeground
		// This code has to use the deprecated field, because clients can still send it.
		options.OrphanDependents, options.PropagationPolicy = nil, &foreground
	}
	return nil
}

// expectedNamespace checks the preconditions of a delete. It is separate because Kubernetes' error
// messages for namespaces differ from those for other kinds.
func expectedNamespace(ns *corev1.Namespace, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	conflict := func(what, said, has string) error {
		return apierrors.NewConflict(corev1.Resource("namespaces"), ns.GetName(),
			fmt.Errorf("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, said, what,
				has)) //nolint:staticcheck // the text is that of Kubernetes
	}
	if p.UID != nil && *p.UID != ns.GetUID() {
		return conflict("UID", string(*p.UID), string(ns.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != ns.GetResourceVersion() {
		return conflict("ResourceVersion", *p.ResourceVersion, ns.GetResourceVersion())
	}
	return nil
}

func validateNamespace(_ context.Context, ns *corev1.Namespace) field.ErrorList {
	var r report.Report
	for _, finalizer := range ns.Spec.Finalizers {
		checkFinalizer(&r, string(finalizer), field.NewPath("spec", "finalizers"))
	}
	return r.Errors
}

func checkFinalizer(r *report.Report, name string, path *field.Path) {
	r.Add(apivalidation.ValidateFinalizerName(name, path)...)
	own := name == string(corev1.FinalizerKubernetes) || name == metav1.FinalizerOrphanDependents ||
		name == metav1.FinalizerDeleteDependents
	if !strings.Contains(name, "/") && !own {
		r.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

func validateNamespaceStatus(_ context.Context, ns, _ *corev1.Namespace) field.ErrorList {
	var r report.Report
	path := field.NewPath("status", "Phase")
	if ns.DeletionTimestamp.IsZero() {
		if ns.Status.Phase != corev1.NamespaceActive {
			r.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")
		}
	} else if ns.Status.Phase != corev1.NamespaceTerminating {
		r.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
	return r.Errors
}

func validateNamespaceFinalize(_ context.Context, ns, _ *corev1.Namespace) field.ErrorList {
	var r report.Report
	for i, finalizer := range ns.Spec.Finalizers {
		checkFinalizer(&r, string(finalizer), field.NewPath("spec", "finalizers").Index(i))
	}
	return r.Errors
}

func namespaceCells(ns *corev1.Namespace, env resource.CellEnv) []any {
	return []any{ns.Name, string(ns.Status.Phase), env.Age(ns.CreationTimestamp)}
}

func namespaceFields(ns *corev1.Namespace) fields.Set {
	return fields.Set{"status.phase": string(ns.Status.Phase)}
}
