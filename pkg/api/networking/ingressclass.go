// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// ingressClassRow returns the row of the kind table for the resource ingressclasses.
func ingressClassRow() *resource.Row {
	return resource.Of[networkingv1.IngressClassList](resource.Kind[*networkingv1.IngressClass]{
		Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses", Kind: "IngressClass",

		Default:       defaultIngressClass,
		MetaOnUpdate:  resource.CheckNameAndFinalizers,
		PrepareCreate: strategy.StartGeneration[networkingv1.IngressClass],
		PrepareUpdate: strategy.CountSpec(
			func(o *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &o.Spec }),
		AllowUnconditionalUpdate: true,
		Validate:                 validateIngressClass,
		ValidateUpdate:           validateIngressClassUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Controller", Type: "string", Description: "Controller that is responsible for handling this class"},
			{Name: "Parameters", Type: "string", Description: "A reference to a resource with additional parameters"},
			column.Age(),
		},
		Cells: ingressClassCells,
	})
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		unset.Point(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func validateIngressClass(_ context.Context, c *networkingv1.IngressClass) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	if len(c.Spec.Controller) > maxController {
		r.TooLong(path.Child("controller"), maxController)
	}
	r.Add(validation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		classParameters(&r, path.Child("parameters"), p)
	}
	return r.Errors
}

func validateIngressClassUpdate(ctx context.Context, c, old *networkingv1.IngressClass) field.ErrorList {
	var r report.Report
	r.Immutable(field.NewPath("spec", "controller"), c.Spec.Controller, old.Spec.Controller)
	r.Add(validateIngressClass(ctx, c)...)
	return r.Errors
}

func classParameters(r *report.Report, path *field.Path, p *networkingv1.IngressClassParametersReference) {
	reference(r, path, p.APIGroup, p.Kind, p.Name)
	if p.Scope == nil {
		r.Required(path.Child("scope"), "")
		return
	}
	at := path.Child("namespace")
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			r.Required(at, "`parameters.scope` is set to 'Namespace'")
		} else {
			r.Label(at, *p.Namespace)
		}
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			r.Forbidden(at, "`parameters.scope` is set to 'Cluster'")
		}
	default:
		report.OneOf(r, path.Child("scope"), *p.Scope,
			networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)
	}
}

func ingressClassCells(c *networkingv1.IngressClass, env resource.CellEnv) []any {
	name := c.Name
	if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		name += " (default)"
	}
	parameters := column.None
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, c.Spec.Controller, parameters, env.Age(c.CreationTimestamp)}
}
