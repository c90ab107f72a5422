// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NewStoredForm returns the StoredForm for objects that were stored as the given kind. They are
// decoded to *In, and converted to *Out, the type of the resource's objects: fields with the same
// JSON names are copied, and convert, which may be nil, copies the others.
func NewStoredForm[In, Out any](kind schema.GroupVersionKind, convert func(in *In, out *Out)) StoredForm {
	return StoredForm{
		Kind: kind,
		New:  func() Object { return any(new(In)).(Object) },
		ToStorage: func(obj Object) (Object, error) {
			in, ok := any(obj).(*In)
			if !ok {
				return nil, fmt.Errorf("convert %T: not of %s", obj, kind)
			}
			data, err := json.Marshal(in)
			if err != nil {
				return nil, err
			}
			out := new(Out)
			if err := json.Unmarshal(data, out); err != nil {
				return nil, err
			}
			if convert != nil {
				convert(in, out)
			}
			return any(out).(Object), nil
		},
	}
}

// StoredForm returns the StoredForm for objects that were stored in this version of the resource.
// Its ToStorage applies the defaults of the version. kind is the kind in this version.
func (v *Version) StoredForm(kind schema.GroupVersionKind) StoredForm {
	return StoredForm{Kind: kind, New: v.New, ToStorage: func(obj Object) (Object, error) {
		if v.Default != nil {
			v.Default(obj)
		}
		return v.ToStorage(obj)
	}}
}
