// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// converters creates converters between the versions of a CustomResourceDefinition.
type converters interface {
	NewConverter(crd *apiextensionsv1.CustomResourceDefinition) (safe, unsafe runtime.ObjectConvertor, err error)
}

// definition is a CustomResourceDefinition that is served. It is immutable, except for parts that
// are created when they are first needed.
type definition struct {
	// The definition itself.

	record      *store.Record // the stored CustomResourceDefinition
	mark        mark
	group, kind string
	stored      string // name of the storage version

	// Dependencies.

	convert  converters
	metadata *metadataSchemas
	asking   *asking // limits how long caches wait for the conversion webhook of this definition

	// The schemas and the converter, or the error of creating them. The first use creates them by
	// once.

	once sync.Once
	made *machine
	err  error
}

// machine has the parts of a CustomResourceDefinition that are expensive to create: its schemas and
// the converter between its versions.
type machine struct {
	*schemas
	converter runtime.ObjectConvertor
}

// mark is a hash of the content of a CustomResourceDefinition. Definitions with the same mark serve
// the same resources by the same rules.
type mark [sha256.Size]byte

// markOf hashes the parts of crd that determine how its custom resources are served.
func markOf(crd *apiextensionsv1.CustomResourceDefinition) (m mark, err error) {
	h := sha256.New()
	err = json.NewEncoder(h).Encode([]any{crd.UID, crd.Spec, crd.Status.AcceptedNames})
	h.Sum(m[:0])
	return m, err
}

// crd decodes the CustomResourceDefinition.
func (d *definition) crd() (*apiextensionsv1.CustomResourceDefinition, error) {
	obj, err := d.record.Object()
	if err != nil {
		return nil, err
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("definition is stored as %T", obj)
	}
	return crd, nil
}

// machine returns the machine of the CustomResourceDefinition, which the first call creates.
func (d *definition) machine() (*machine, error) {
	d.once.Do(func() {
		if d.made, d.err = d.assemble(); d.err != nil {
			d.err = fmt.Errorf("the server could not properly serve the CR schema: %w", d.err)
		}
	})
	return d.made, d.err
}

func (d *definition) assemble() (*machine, error) {
	crd, err := d.crd()
	if err != nil {
		return nil, err
	}
	m := &machine{}
	if m.schemas, err = newSchemas(crd); err != nil {
		return nil, err
	}
	_, m.converter, err = d.convert.NewConverter(crd)
	return m, err
}

// to converts the custom resource u to a version. It may change u, so the caller must not use u
// afterwards.
func (m *machine) to(u *unstructured.Unstructured, version string) (*unstructured.Unstructured, error) {
	gv := schema.GroupVersion{Group: m.group, Version: version}
	if u.GroupVersionKind().GroupVersion() == gv {
		return u, nil
	}
	out, err := m.converter.ConvertToVersion(u, gv)
	if err != nil {
		return nil, err
	}
	converted, ok := out.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("conversion to %s made %T", gv, out)
	}
	return converted, nil
}

// conversion returns a function that converts custom resources of any version to the given version.
func (d *definition) conversion(version string) func(resource.Object) (resource.Object, error) {
	return func(obj resource.Object) (resource.Object, error) {
		m, err := d.machine()
		if err != nil {
			return nil, err
		}
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("convert %T: not a custom resource", obj)
		}
		return m.to(u.DeepCopy(), version)
	}
}

// newObject returns a function that creates empty custom resources of the given version.
func (d *definition) newObject(version string) func() resource.Object {
	apiVersion := schema.GroupVersion{Group: d.group, Version: version}.String()
	return func() resource.Object {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": d.kind}}
	}
}
