// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"keelson.dev/apiserver/openapi"
)

const (
	objectMeta  = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	moreOnKinds = "More info: https://git.k8s.io/community/contributors/devel/" +
		"sig-architecture/api-conventions.md#types-kinds"
	moreOnAPI = "More info: https://git.k8s.io/community/contributors/devel/" +
		"sig-architecture/api-conventions.md#resources"
	apiVersion = "APIVersion defines the versioned schema of this representation of an object. Servers " +
		"should convert recognized schemas to the latest internal value, and may reject unrecognized values. " + moreOnAPI
	kindMeaning = "Kind is a string value representing the REST resource this object represents. Servers " +
		"may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. " + moreOnKinds
)

// openAPI returns the OpenAPI definitions of a version's kind, for the v3 and v2 documents.
func (d *definition) openAPI(version string) (v3, v2 []byte, err error) {
	crd, err := d.crd()
	if err != nil {
		return nil, nil, err
	}
	if v3, err = json.Marshal(published(crd, version, false)); err != nil {
		return nil, nil, err
	}
	v2, err = json.Marshal(published(crd, version, true))
	return v3, v2, err
}

// published returns the schema of a version for OpenAPI documents. If the schema is not structural,
// it returns one without properties.
func published(crd *apiextensionsv1.CustomResourceDefinition, version string, v2 bool) *spec.Schema {
	out := kindSchema(crd, unfolded(crd, version), v2)
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != version || len(v.SelectableFields) == 0 {
			continue
		}
		list := make([]any, 0, len(v.SelectableFields))
		for _, f := range v.SelectableFields {
			list = append(list, map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")})
		}
		out.AddExtension("x-kubernetes-selectable-fields", list)
	}
	return out
}

// unfolded returns the structural schema of a version, in which value validations (allOf, anyOf and
// so on) are merged into the fields that they restrict. It returns nil if the schema is not
// structural.
func unfolded(crd *apiextensionsv1.CustomResourceDefinition, version string) *schema.Structural {
	in, err := apihelpers.GetSchemaForVersion(crd, version)
	if err != nil || in == nil {
		return nil
	}
	_, s, err := structuralOf(in)
	if err != nil || s == nil || len(schema.ValidateStructural(nil, s)) > 0 {
		return nil
	}
	return s.Unfold()
}

// kindSchema converts s for OpenAPI documents and adds apiVersion, kind and metadata.
func kindSchema(crd *apiextensionsv1.CustomResourceDefinition, s *schema.Structural, v2 bool) *spec.Schema {
	if s == nil || v2 && (s.XPreserveUnknownFields || crd.Spec.PreserveUnknownFields) {
		// A client that reads v2 would reject all fields that are not among the properties of the
		// schema. So publish a schema without properties, which allows any field.
		return new(spec.Schema).Typed("object", "")
	}
	if v2 {
		s = openapiv2.ToStructuralOpenAPIV2(s)
	}
	out := s.ToKubeOpenAPI()
	out.SetProperty("metadata", metadataProperty(v2))
	out.SetProperty("apiVersion", *spec.StringProperty().WithDescription(apiVersion))
	out.SetProperty("kind", *spec.StringProperty().WithDescription(kindMeaning))
	addEmbedded(out, v2)
	if v2 {
		dropDefaults(out)
	}
	return out
}

// dropDefaults removes all defaults from s, because Kubernetes' v2 documents have none.
func dropDefaults(s *spec.Schema) {
	if s == nil {
		return
	}
	s.Default = nil
	for name, p := range s.Properties {
		dropDefaults(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		dropDefaults(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		dropDefaults(s.AdditionalProperties.Schema)
	}
}

func metadataProperty(v2 bool) spec.Schema {
	description := metav1beta1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]
	if v2 {
		return *spec.RefSchema("#/definitions/" + objectMeta).WithDescription(description)
	}
	// In v3, a schema with a reference must not have other fields such as description, so the
	// reference is wrapped in allOf.
	return *spec.ComposedSchema(*spec.RefSchema("#/components/schemas/" + objectMeta)).WithDescription(description)
}

// addEmbedded adds apiVersion, kind and metadata to the schemas of embedded objects in s.
func addEmbedded(s *spec.Schema, v2 bool) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		addEmbedded(&p, v2)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema, v2)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema, v2)
	}
	if preserve, ok := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); ok && preserve && v2 {
		return
	}
	if embedded, ok := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !ok || !embedded {
		return
	}
	s.SetProperty("apiVersion",
		*spec.StringProperty().WithDescription(
			"apiVersion defines the versioned schema of this representation of an object. " + moreOnAPI))
	s.SetProperty("kind",
		*spec.StringProperty().WithDescription(
			"kind is a string value representing the type of this object. In CamelCase. " + moreOnKinds))
	s.SetProperty("metadata", metadataProperty(v2))
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// metadataSchemas has the OpenAPI schemas of ObjectMeta and of the types of its fields. They are
// read from the built-in definitions when they are first needed.
type metadataSchemas struct {
	source interface {
		Definitions(version int) ([]byte, error)
	}
	once    sync.Once
	schemas map[string]*spec.Schema
	err     error
}

func (m *metadataSchemas) get() (map[string]*spec.Schema, error) {
	m.once.Do(func() { m.schemas, m.err = m.read() })
	return m.schemas, m.err
}

func (m *metadataSchemas) read() (map[string]*spec.Schema, error) {
	doc, err := m.source.Definitions(3)
	if err != nil {
		return nil, err
	}
	defs, err := openapi.Parse(doc, 3)
	if err != nil {
		return nil, err
	}
	return defs.Models(objectMeta)
}

// typeConverter has the schemas of a definition's kind for managedFields. They are created when
// they are first needed.
type typeConverter struct {
	d    *definition
	once sync.Once
	made managedfields.TypeConverter
	err  error
}

var _ managedfields.TypeConverter = (*typeConverter)(nil)

func (t *typeConverter) converter() (managedfields.TypeConverter, error) {
	t.once.Do(func() { t.made, t.err = t.d.typeConverter() })
	return t.made, t.err
}

// ObjectToTyped converts an object by the schema of its version.
func (t *typeConverter) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (
	*typed.TypedValue, error) {
	c, err := t.converter()
	if err != nil {
		return nil, err
	}
	return c.ObjectToTyped(obj, options...)
}

// TypedToObject converts a value back to a custom resource.
func (t *typeConverter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	c, err := t.converter()
	if err != nil {
		return nil, err
	}
	return c.TypedToObject(v)
}

func (d *definition) typeConverter() (managedfields.TypeConverter, error) {
	crd, err := d.crd()
	if err != nil {
		return nil, err
	}
	meta, err := d.metadata.get()
	if err != nil {
		return nil, err
	}
	models := make(map[string]*spec.Schema, len(meta)+len(crd.Spec.Versions))
	for name, s := range meta {
		models[name] = s
	}
	for i := range crd.Spec.Versions {
		gvk := kschema.GroupVersionKind{Group: d.group, Version: crd.Spec.Versions[i].Name, Kind: d.kind}
		model := kindSchema(crd, unfolded(crd, gvk.Version), false)
		model.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind},
		})
		models[openapi.KindName(gvk)] = model
	}
	return managedfields.NewTypeConverter(models, crd.Spec.PreserveUnknownFields)
}
