// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// coercion holds the options of coerce.
type coercion struct {
	// stored is true if the object comes from the store. Invalid metadata is then dropped instead of
	// rejected, because older servers may have accepted it.
	stored bool
	// If findings is true, coerce returns the paths of the unknown fields that it drops.
	findings bool
}

// coerce changes u as if it had been decoded into a Go type. It validates metadata and drops
// unknown fields there. In the rest of u, it drops fields that are not in the schema, and nulls
// where the schema does not allow them. It returns the paths of unknown fields if how.findings is
// true.
func (s *schemas) coerce(u *unstructured.Unstructured, how coercion) ([]string, error) {
	kind, hasKind, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, hasVersion, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	meta, hasMeta, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: how.stored, ReturnUnknownFieldPaths: how.findings,
	})
	if err != nil {
		return nil, err
	}
	gv, err := kschema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	if gv.Group == s.group && kind == s.kind {
		more, err := s.fit(u, gv.Version, how)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, more...)
		if how.stored && meta != nil && meta.Generation == 0 {
			meta.Generation = 1 // the object was stored before generations were counted
		}
	}
	if hasKind {
		u.SetKind(kind)
	}
	if hasVersion {
		u.SetAPIVersion(apiVersion)
	}
	if hasMeta {
		return unknown, objectmeta.SetObjectMeta(u.Object, meta)
	}
	return unknown, nil
}

// fit drops fields and nulls that the schema of a version does not allow.
func (s *schemas) fit(u *unstructured.Unstructured, version string, how coercion) (unknown []string, err error) {
	structural := s.structural[version]
	if !s.preserve {
		unknown = pruning.PruneWithOptions(u.Object, structural, true,
			schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: how.findings})
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, structural)
	}
	ferr, more := objectmeta.CoerceWithOptions(nil, u.Object, structural, false, objectmeta.CoerceOptions{
		DropInvalidFields: how.stored, ReturnUnknownFieldPaths: how.findings,
	})
	if ferr != nil { // an error that holds a nil *field.Error would not equal nil
		return nil, ferr
	}
	return append(unknown, more...), nil
}

// applyDefaults sets defaults by the schema of u's version.
func (s *schemas) applyDefaults(u *unstructured.Unstructured) {
	gvk := u.GroupVersionKind()
	if gvk.Group == s.group && gvk.Kind == s.kind {
		defaulting.Default(u.Object, s.structural[gvk.Version])
	}
}

// read prepares an object from the store: it coerces the object and sets defaults.
func (s *schemas) read(u *unstructured.Unstructured) error {
	if _, err := s.coerce(u, coercion{stored: true}); err != nil {
		return err
	}
	s.applyDefaults(u)
	return nil
}

// unknownFields returns an error for each path in paths, which coerce has returned.
func unknownFields(paths []string) []error {
	if len(paths) == 0 {
		return nil
	}
	errs := make([]error, len(paths))
	for i, p := range paths {
		errs[i] = fmt.Errorf("unknown field %q", p)
	}
	return errs
}
