// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NewStoredForm is a form of a row of Out, in which objects are *In. What the two call the same
// in JSON is taken over; convert does the rest, and may be nil.
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

// StoredForm returns the version as a form that the row's objects may have been stored in, defaults
// filled in as they would be when it is served. Kind says that it is of the version.
func (v *Version) StoredForm(kind schema.GroupVersionKind) StoredForm {
	return StoredForm{Kind: kind, New: v.New, ToStorage: func(obj Object) (Object, error) {
		if v.Default != nil {
			v.Default(obj)
		}
		return v.ToStorage(obj)
	}}
}
