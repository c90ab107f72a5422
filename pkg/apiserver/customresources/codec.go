// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"keelson.dev/apiserver/store"
)

// codec encodes objects of one version of a CustomResourceDefinition for the store, as JSON in the
// storage version. It decodes stored objects of any version.
type codec struct {
	d       *definition
	version string
}

var _ store.Codec = codec{}

// Lossy implements store.Codec. It returns true if the version is not the storage version: then
// Encode converts objects, which may drop fields or add defaults.
func (c codec) Lossy() bool { return c.version != c.d.stored }

// Encode returns the stored form of the custom resource obj. It does not change obj.
func (c codec) Encode(obj store.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a custom resource", obj)
	}
	if c.version != c.d.stored {
		m, err := c.d.machine()
		if err != nil {
			return nil, err
		}
		if u, err = m.to(u.DeepCopy(), c.d.stored); err != nil {
			return nil, err
		}
		if _, err := m.coerce(u, coercion{}); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	err := json.NewEncoder(&out).Encode(withoutVersion(u.Object))
	return out.Bytes(), err
}

// withoutVersion returns a copy of object without metadata.resourceVersion. The copy is shallow: it
// shares all other values with object.
func withoutVersion(object map[string]any) map[string]any {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return object
	}
	shallow := make(map[string]any, len(object))
	for k, v := range object {
		shallow[k] = v
	}
	bare := make(map[string]any, len(meta))
	for k, v := range meta {
		if k != "resourceVersion" {
			bare[k] = v
		}
	}
	shallow["metadata"] = bare
	return shallow
}

// Decode decodes a stored object. It prunes unknown fields and sets defaults by the schema of the
// version in which the object is stored. Then it converts the object to the codec's version.
func (c codec) Decode(data []byte, rev int64) (store.Object, error) {
	m, err := c.d.machine()
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if err := m.read(u); err != nil {
		return nil, err
	}
	if u.GroupVersionKind().Version != c.version {
		if u, err = m.to(u, c.version); err != nil {
			return nil, err
		}
		if _, err := m.coerce(u, coercion{}); err != nil {
			return nil, err
		}
	}
	if rev != 0 {
		u.SetResourceVersion(strconv.FormatInt(rev, 10))
	}
	return u, nil
}
