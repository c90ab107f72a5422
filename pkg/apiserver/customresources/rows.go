// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
)

// rows returns the rows of the kind table for a CustomResourceDefinition's served versions, with
// the options for adding them to the API.
func (d *definition) rows(crd *apiextensionsv1.CustomResourceDefinition, terminating bool) []rest.Addition {
	types, identity := &typeConverter{d: d}, fmt.Sprintf("%x", d.mark)
	var out []rest.Addition
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served {
			row, options := d.row(crd, v, terminating), rest.RowOptions{
				TypeConverter: types, Structure: d.structure, Identity: identity,
				OpenAPI: d.openAPI, OpenAPIHash: identity,
			}
			out = append(out, rest.Addition{Row: row, Options: options})
		}
	}
	return out
}

// storedRow returns a row of the kind table for the storage version, even if that version is not
// served.
func (d *definition) storedRow(crd *apiextensionsv1.CustomResourceDefinition) *resource.Row {
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Storage {
			return d.row(crd, v, false)
		}
	}
	return nil // cannot happen: every definition has a storage version
}

func (d *definition) row(crd *apiextensionsv1.CustomResourceDefinition,
	v *apiextensionsv1.CustomResourceDefinitionVersion, terminating bool) *resource.Row {
	names := crd.Status.AcceptedNames
	kind := &version{d: d, name: v.Name, hasStatus: v.Subresources != nil &&
		v.Subresources.Status != nil, scale: newScale(v.Subresources)}
	cols, defs := newColumns(v)
	row := &resource.Row{
		Group: crd.Spec.Group, Resource: names.Plural, Singular: names.Singular, Kind: names.Kind, ListKind: names.ListKind,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced:    crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		StoragePrefix: crd.Spec.Group + "/" + names.Plural,
		Custom:        true, Version: v.Name, StoredAs: schema.GroupVersionKind{Group: crd.Spec.Group,
			Version: d.stored, Kind: names.Kind},
		Codec: codec{d, v.Name}, New: d.newObject(v.Name),
		NewList:     func() runtime.Object { return &unstructured.UnstructuredList{} },
		ListedVerbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		Columns:     defs, Cells: cols.cells,
		Default: kind.defaults, PrepareCreate: kind.prepareCreate, Validate: kind.validate,
		PrepareUpdate: kind.prepareUpdate, ValidateUpdate: kind.validateUpdate, Warnings: warnings,
		Canonicalize: kind.reread,
	}
	if terminating {
		row.ListedVerbs = []string{"delete", "deletecollection", "get", "list", "watch"}
		row.Hooks.BeforeCreate = d.refuse
	}
	if kind.hasStatus {
		row.ResetFields = []string{"status"}
		row.Subresources = append(row.Subresources, resource.RowSub{
			Subresource: resource.Subresource{Name: "status", Verbs: []string{"get", "patch", "update"},
				View: true, ResetFields: []string{"metadata", "spec"}},
			PrepareUpdate: kind.prepareStatus, ValidateUpdate: kind.validateStatus,
		})
	}
	if kind.scale != nil {
		row.Subresources = append(row.Subresources, resource.RowSub{Subresource: kind.scale.subresource(replicaPaths(crd))})
	}
	row.SelectableFields, row.Fields = selectable(v.SelectableFields)
	row.UnknownField = "field label not supported: %[1]s"
	if c := crd.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		remote := remoteCodec{codec{d, v.Name}, row.Fields, d.asking}
		row.Codec, row.Peek = remote, remote.Peek
	}
	row.Versions = kind.versions(crd, v)
	return row
}

// versions returns all versions of the CustomResourceDefinition, for the kind table's row of the
// version own. This version comes first. Each of the other versions has functions that convert its
// objects to this version and back.
func (v *version) versions(crd *apiextensionsv1.CustomResourceDefinition,
	own *apiextensionsv1.CustomResourceDefinitionVersion) []resource.Version {
	out := []resource.Version{{Name: own.Name, Deprecated: deprecation(crd, own)}}
	for i := range crd.Spec.Versions {
		if other := crd.Spec.Versions[i].Name; other != own.Name {
			out = append(out, resource.Version{
				Name: other, New: v.d.newObject(other), Default: v.defaults,
				FromStorage: v.d.conversion(other), ToStorage: v.d.conversion(own.Name),
			})
		}
	}
	return out
}

// selectable returns the selectable fields in list, and a function that reads their values from an
// object.
func selectable(list []apiextensionsv1.SelectableField) ([]string, func(resource.Object) fields.Set) {
	if len(list) == 0 {
		return nil, nil
	}
	names, parsers := make([]string, len(list)), make([]*parser, len(list))
	for i, f := range list {
		names[i], parsers[i] = strings.TrimPrefix(f.JSONPath, "."), parsePath(f.JSONPath)
	}
	return names, func(obj resource.Object) fields.Set {
		set := make(fields.Set, len(names)+2)
		for i, name := range names {
			set[name] = ""
			if parsers[i] == nil {
				continue
			}
			if found, err := parsers[i].find(object(obj).Object); err == nil && len(found) == 1 && valid(found[0]) {
				set[name] = fmt.Sprint(found[0].Interface())
			}
		}
		return set
	}
}

func valid(v reflect.Value) bool { return v.IsValid() && v.Interface() != nil }

// structure coerces a custom resource from a client to the schema of its version.
func (d *definition) structure(_ string, obj resource.Object, unknown bool) ([]error, error) {
	m, err := d.machine()
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	paths, err := m.coerce(object(obj), coercion{findings: unknown})
	return unknownFields(paths), err
}

// refuse is the hook for creates of custom resources while their CustomResourceDefinition is being
// deleted. It rejects all of them.
func (d *definition) refuse(_ context.Context, obj resource.Object, _ bool) (func(bool), error) {
	return nil, apierrors.NewForbidden(schema.ParseGroupResource(d.record.Key), obj.GetName(),
		errors.New("create not allowed while custom resource definition is terminating"))
}
