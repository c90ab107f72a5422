// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"fmt"
	"math"
	"strings"

	autoscaling "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
)

// scale describes the scale subresource of a version by the paths of its fields.
type scale struct {
	spec, status, selector string // paths as in definitions, such as ".spec.replicas"
}

func newScale(sub *apiextensionsv1.CustomResourceSubresources) *scale {
	if sub == nil || sub.Scale == nil {
		return nil
	}
	s := &scale{spec: sub.Scale.SpecReplicasPath, status: sub.Scale.StatusReplicasPath}
	if sub.Scale.LabelSelectorPath != nil {
		s.selector = *sub.Scale.LabelSelectorPath
	}
	return s
}

// replicaPaths returns, by version, the path of the field with the desired number of replicas.
func replicaPaths(crd *apiextensionsv1.CustomResourceDefinition) map[string]string {
	paths := make(map[string]string)
	for i := range crd.Spec.Versions {
		if s := newScale(crd.Spec.Versions[i].Subresources); s != nil {
			paths[crd.Spec.Versions[i].Name] = strings.TrimPrefix(s.spec, ".")
		}
	}
	return paths
}

func fieldsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// validate validates the fields to which the paths of s refer. It includes the desired number of
// replicas only if spec is true.
func (s *scale) validate(u map[string]any, spec bool) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if spec {
		errs = append(errs, checkReplicas(u, s.spec)...)
	}
	errs = append(errs, checkReplicas(u, s.status)...)
	if s.selector != "" {
		if v, _, err := unstructured.NestedString(u, fieldsOf(s.selector)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(s.selector), v, err.Error()))
		}
	}
	return errs
}

func checkReplicas(u map[string]any, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(u, fieldsOf(path)...)
	detail := ""
	switch {
	case err != nil:
		detail = err.Error()
	case n < 0:
		detail = "should be a non-negative integer"
	case n > math.MaxInt32:
		detail = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, detail)}
}

// get returns the values for the Scale of an object. A missing value is zero, except that spec is
// resource.NoReplicas if the object does not have the desired number of replicas.
func (s *scale) get(obj resource.Object) (spec, status int32, selector string, err error) {
	u := object(obj).Object
	want, found, err := unstructured.NestedInt64(u, fieldsOf(s.spec)...)
	if err != nil {
		return 0, 0, "", err
	}
	if !found {
		want = resource.NoReplicas
	}
	have, _, err := unstructured.NestedInt64(u, fieldsOf(s.status)...)
	if err != nil {
		return 0, 0, "", err
	}
	if s.selector != "" {
		if selector, _, err = unstructured.NestedString(u, fieldsOf(s.selector)...); err != nil {
			return 0, 0, "", err
		}
	}
	return int32(want), int32(have), selector, nil // validation has limited both numbers to 32 bits
}

func (s *scale) set(obj resource.Object, replicas int32) {
	// It fails if a parent of the field is not an object. Validation reports this.
	_ = unstructured.SetNestedField(object(obj).Object, int64(replicas), fieldsOf(s.spec)...)
}

// subresource returns the scale subresource of a version. paths are the results of replicaPaths.
func (s *scale) subresource(paths map[string]string) resource.Subresource {
	return resource.Subresource{
		Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: autoscaling.SchemeGroupVersion.WithKind("Scale"),
		Scale: &resource.Scale{Get: s.get, Set: s.set, SpecPath: strings.TrimPrefix(s.spec, "."), Paths: paths},
	}
}
