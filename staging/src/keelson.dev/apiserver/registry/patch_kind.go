// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/typedjson"
)

// decode decodes a patched document into out. The document must be an object of the resource,
// either of the request's kind and version or in another form that can be converted to it.
func (pp *patching) decode(doc []byte, out resource.Object) error {
	findings, err := pp.read(doc, out)
	if err != nil {
		return pp.decodeOther(doc, out, err)
	}
	if structure := pp.r.cfg.Structure; structure != nil {
		more, err := structure(pp.kind().Version, out, pp.strict.On())
		if err != nil {
			return pp.decodeOther(doc, out, err)
		}
		findings = append(findings, more...)
	}
	if !pp.r.dynamic { // objects without a Go type are validated later, after their names
		if out.GetObjectKind().GroupVersionKind().Version == "" {
			if _, err := serializer.DefaultMetaFactory.Interpret(doc); err != nil {
				return err // the apiVersion in the document is invalid
			}
			findings = pp.readNothing(doc, out)
		}
		if pp.r.convert.scheme != nil && pp.declared(out.GetObjectKind().GroupVersionKind()) != pp.kind() {
			return pp.decodeOther(doc, out, nil)
		}
	}
	return pp.check(out, findings)
}

// read decodes a document into the argument out. If this object has no Go type, findings contain
// only repeated fields, which only a JSON patch can produce.
func (pp *patching) read(doc []byte, out resource.Object) (findings []error, err error) {
	if u, ok := out.(*unstructured.Unstructured); ok {
		if err := u.UnmarshalJSON(doc); err != nil || !pp.strict.On() || pp.p.Type != types.JSONPatchType {
			return nil, err
		}
		return kjson.UnmarshalStrict(doc, &map[string]any{})
	}
	return typedjson.Unmarshal(doc, out, pp.strict.On())
}

// check returns an error if the decoded object cannot be used (see Kind.Readable), or if the strict
// decoder has found unknown or duplicate fields.
func (pp *patching) check(out resource.Object, findings []error) error {
	if err := pp.r.readable(out); err != nil {
		return err
	}
	if len(findings) > 0 {
		return runtime.NewStrictDecodingError(findings)
	}
	return nil
}

// decodeOther decodes a document that could not be decoded as the request's kind because of err.
// The document may declare another version than the request, or another kind among the resource's
// StoredForms. If it declares the request's kind, decodeOther returns err.
func (pp *patching) decodeOther(doc []byte, out resource.Object, err error) error {
	gvk, kindErr := serializer.DefaultMetaFactory.Interpret(doc)
	if kindErr != nil {
		return kindErr
	}
	scheme := pp.r.convert.scheme
	if pp.r.dynamic || scheme == nil {
		return err
	}
	kind, want := pp.declared(*gvk), pp.kind()
	if kind == want && gvk.Version == "" {
		return pp.check(out, pp.readNothing(doc, out))
	}
	if kind == want {
		return err
	}
	if form, ok := pp.r.convert.form(kind); ok {
		return pp.converted(doc, form, out)
	}
	other, err := scheme.New(kind)
	if err != nil {
		if gvk.Version == "" {
			kind.Version = runtime.APIVersionInternal
		}
		return runtime.NewNotRegisteredErrForKind(scheme.Name(), kind)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, other); err != nil {
		return err
	}
	return fmt.Errorf("converting (%s.%s) to (%s): unknown conversion", kind.Version, kind.Kind,
		resource.InternalName(want))
}

// converted decodes a document in the given form, which is not the request's, and converts it into
// out.
func (pp *patching) converted(doc []byte, form resource.StoredForm, out resource.Object) error {
	in := form.New()
	findings, err := pp.read(doc, in)
	if err != nil {
		return err
	}
	obj, err := form.ToStorage(in)
	if err != nil {
		return err
	}
	if obj, err = pp.r.convert.fromStorage(obj, pp.v); err != nil {
		return err
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj).Elem())
	return pp.check(out, findings)
}

// readNothing decodes a document without a version as Kubernetes does: into an internal type. Its
// fields have other names, so out stays empty and all fields of the document are unknown.
func (pp *patching) readNothing(doc []byte, out resource.Object) []error {
	kind := out.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(out).Elem().SetZero()
	out.GetObjectKind().SetGroupVersionKind(kind)
	if !pp.strict.On() {
		return nil
	}
	return unknownFields(doc)
}

// unknownFields returns a finding for each field of the document.
func unknownFields(doc []byte) []error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil {
		return nil // impossible: the document has already been decoded
	}
	var findings []error
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "kind" && name != "apiVersion" {
			findings = append(findings, fmt.Errorf("unknown field %q", name))
		}
	}
	return findings
}

// declared returns the kind that a patched document declares. If the patch has removed kind or
// apiVersion, declared uses the request's instead.
func (pp *patching) declared(got schema.GroupVersionKind) schema.GroupVersionKind {
	want := pp.kind()
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" && (got.Group == "" || got.Group == want.Group) && !pp.r.dynamic {
		got.Group, got.Version = want.Group, want.Version
	}
	return got
}
