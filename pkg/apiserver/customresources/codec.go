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

// codec stores the objects of one version's row as JSON in the definition's storage version. It
// reads objects stored in any version.
type codec struct {
	d       *definition
	version string
}

var _ store.Codec = codec{}

// Lossy implements store.Codec. It reports whether encoding converts objects to another version,
// which may lose fields or add defaults.
func (c codec) Lossy() bool { return c.version != c.d.stored }

// Encode returns the stored form of obj. It does not change obj.
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

// withoutVersion returns object without resourceVersion. It shares everything else with object.
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

// Decode decodes a stored object into the row's version. It prunes and defaults the object by the
// schema of the version it was stored in, and converts it.
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
