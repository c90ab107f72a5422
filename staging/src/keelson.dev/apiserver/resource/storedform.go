// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NewStoredForm returns the stored form kind for a resource whose objects have the type *Out.
// Objects in this form are decoded to *In. Fields with the same JSON names are copied. convert
// copies the others, and may be nil.
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

// StoredForm returns a form for objects that were stored in this version of the resource. ToStorage
// of the form applies the defaults of the version. kind is the name of the kind in this version.
func (v *Version) StoredForm(kind schema.GroupVersionKind) StoredForm {
	return StoredForm{Kind: kind, New: v.New, ToStorage: func(obj Object) (Object, error) {
		if v.Default != nil {
			v.Default(obj)
		}
		return v.ToStorage(obj)
	}}
}
