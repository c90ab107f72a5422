// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// convertor converts, creates and defaults the objects of one resource in all of its versions. If
// an object already is in the requested version, it returns the object itself and not a copy.
type convertor struct {
	row     *resource.Row
	scheme  *runtime.Scheme
	dynamic bool // objects have no Go type; kind and version are in their fields
}

func newConvertor(row *resource.Row, scheme *runtime.Scheme) *convertor {
	_, dynamic := row.New().(*unstructured.Unstructured)
	return &convertor{row: row, scheme: scheme, dynamic: dynamic}
}

var (
	_ runtime.ObjectConvertor = (*convertor)(nil)
	_ runtime.ObjectCreater   = (*convertor)(nil)
	_ runtime.ObjectDefaulter = (*convertor)(nil)
)

// version returns a served version, or nil for the storage version.
func (c *convertor) version(name string) (*resource.Version, error) {
	if name == "" || name == c.row.Version {
		return nil, nil
	}
	for i := range c.row.Versions {
		if v := &c.row.Versions[i]; v.Name == name {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%s is not served in version %q", c.row.GroupResource(), name)
}

// newObject returns an empty object of a version.
func (c *convertor) newObject(v *resource.Version) resource.Object {
	if v == nil || v.New == nil {
		return c.row.New()
	}
	return v.New()
}

func (c *convertor) defaults(obj resource.Object, v *resource.Version) {
	if v != nil && v.Default != nil {
		v.Default(obj)
	} else if c.row.Default != nil && (v == nil || v.New == nil) {
		c.row.Default(obj)
	}
}

func (c *convertor) toStorage(obj resource.Object, v *resource.Version) (resource.Object, error) {
	if v == nil || v.ToStorage == nil {
		return obj, nil
	}
	return v.ToStorage(obj)
}

func (c *convertor) fromStorage(obj resource.Object, v *resource.Version) (resource.Object, error) {
	if v == nil || v.FromStorage == nil {
		return obj, nil
	}
	return v.FromStorage(obj)
}

// form returns how objects of the given kind are converted to the resource's own type. The kind may
// be in one of the resource's versions, or one of its StoredForms.
func (c *convertor) form(kind schema.GroupVersionKind) (resource.StoredForm, bool) {
	if i := c.storedForm(kind); i >= 0 {
		return c.row.StoredForms[i], true
	}
	if kind.GroupKind() != c.row.GroupVersionKind().GroupKind() {
		return resource.StoredForm{}, false
	}
	v, err := c.version(kind.Version)
	if err != nil {
		return resource.StoredForm{}, false
	}
	return resource.StoredForm{
		Kind: kind,
		New:  func() resource.Object { return c.newObject(v) },
		ToStorage: func(obj resource.Object) (resource.Object, error) {
			c.defaults(obj, v)
			return c.toStorage(obj, v)
		},
	}, true
}

// New returns an empty object of a kind.
func (c *convertor) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	v, err := c.version(kind.Version)
	if err != nil {
		return nil, err
	}
	obj := c.newObject(v)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: c.row.Group, Version: kind.Version,
		Kind: c.row.Kind})
	return obj, nil
}

// Default fills unset fields of an object of any version.
func (c *convertor) Default(in runtime.Object) {
	obj, ok := in.(resource.Object)
	if !ok {
		return
	}
	v, err := c.version(c.versionOf(obj))
	if err != nil || reflect.TypeOf(obj) != reflect.TypeOf(c.newObject(v)) {
		return // a plugin has replaced the object by one of another kind
	}
	c.defaults(obj, v)
}

// versionOf returns the version of an object: that of its Go type, or else of its apiVersion
// field.
func (c *convertor) versionOf(obj runtime.Object) string {
	t := reflect.TypeOf(obj)
	if !c.dynamic && t == reflect.TypeOf(c.row.New()) {
		return c.row.Version
	}
	for i := range c.row.Versions {
		if v := &c.row.Versions[i]; !c.dynamic && v.New != nil && t == reflect.TypeOf(v.New()) {
			return v.Name
		}
	}
	if v := obj.GetObjectKind().GroupVersionKind().Version; v != "" {
		return v
	}
	return c.row.Version
}

// ConvertToVersion converts an object to the first version of the resource that gv accepts.
func (c *convertor) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	candidates := make([]schema.GroupVersionKind, 0, len(c.row.Versions))
	for _, v := range c.row.Versions {
		candidates = append(candidates, schema.GroupVersionKind{Group: c.row.Group, Version: v.Name, Kind: c.row.Kind})
	}
	target, ok := gv.KindForGroupVersionKinds(candidates)
	if _, err := c.version(target.Version); !ok || err != nil {
		// managedfields drops an entry whose version no longer exists, but only if it gets this
		// error.
		return nil, runtime.NewNotRegisteredErrForTarget("", reflect.TypeOf(in), gv)
	}
	obj, err := c.typed(in)
	if err != nil {
		return nil, err
	}
	from := c.versionOf(obj)
	if from != target.Version {
		if obj, err = c.between(obj, from, target.Version); err != nil {
			return nil, err
		}
	}
	if c.dynamic {
		target.Kind = obj.GetObjectKind().GroupVersionKind().Kind // the kind is validated later
	}
	obj.GetObjectKind().SetGroupVersionKind(target)
	return obj, nil
}

// typed converts an unstructured object to its Go type, if the resource has one, and an object of
// one of the row's StoredForms to the resource's own type.
func (c *convertor) typed(in runtime.Object) (resource.Object, error) {
	obj, ok := in.(resource.Object)
	if !ok {
		return nil, fmt.Errorf("convert %T: not an object", in)
	}
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return c.own(obj)
	}
	v, err := c.version(u.GroupVersionKind().Version)
	if c.dynamic {
		return obj, c.convertible(u.GroupVersionKind(), err == nil)
	}
	out := resource.Object(nil)
	if i := c.storedForm(u.GroupVersionKind()); i >= 0 {
		out = c.row.StoredForms[i].New()
	} else if err != nil {
		return nil, err
	} else {
		out = c.newObject(v)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", u.GroupVersionKind(), err)
	}
	return c.own(out)
}

// storedForm returns the index of a kind in the row's StoredForms, or -1.
func (c *convertor) storedForm(kind schema.GroupVersionKind) int {
	return slices.IndexFunc(c.row.StoredForms, func(o resource.StoredForm) bool { return o.Kind == kind })
}

// own converts an object of one of the row's StoredForms to the resource's own type. It returns
// other objects unchanged.
func (c *convertor) own(obj resource.Object) (resource.Object, error) {
	if c.holds(obj) {
		return obj, nil
	}
	for _, form := range c.row.StoredForms {
		if reflect.TypeOf(form.New()) == reflect.TypeOf(obj) {
			return form.ToStorage(obj)
		}
	}
	return obj, nil
}

// isTwin reports whether obj has the Go type of the resource's twin: the resource of another API
// group that serves the same objects.
func (c *convertor) isTwin(obj runtime.Object) bool {
	return c.row.Twin != nil && reflect.TypeOf(obj) == reflect.TypeOf(c.row.Twin.New())
}

// toTwin converts an object of the resource to the type of its twin: the resource of another API
// group that serves the same objects.
func (c *convertor) toTwin(obj resource.Object) (resource.Object, error) {
	obj, err := c.between(obj, c.versionOf(obj), c.row.Version)
	if err != nil {
		return nil, err
	}
	return newConvertor(c.row.Twin, c.scheme).own(obj)
}

// convertible checks the kind of a custom object, which an admission plugin may have changed. It
// returns an error if the kind is not in the resource's group, or if its version is not served
// (known is false). The texts of the errors are those of Kubernetes.
func (c *convertor) convertible(kind schema.GroupVersionKind, known bool) error {
	switch {
	case kind.Group != c.row.Group:
		return fmt.Errorf("%s is unstructured and is not suitable for converting to %q", kind,
			c.row.GroupVersionKind().GroupVersion())
	case !known:
		return fmt.Errorf("request to convert CR from an invalid group/version: %s", kind.GroupVersion())
	}
	return nil
}

func (c *convertor) between(obj resource.Object, from, to string) (resource.Object, error) {
	vFrom, err := c.version(from)
	if err != nil {
		return nil, err
	}
	vTo, err := c.version(to)
	if err != nil {
		return nil, err
	}
	if obj, err = c.toStorage(obj, vFrom); err != nil {
		return nil, err
	}
	return c.fromStorage(obj, vTo)
}

// holds reports whether obj has one of the resource's Go types. It may not, because a plugin may
// replace the object by one of another type.
func (c *convertor) holds(obj runtime.Object) bool {
	t := reflect.TypeOf(obj)
	return t == reflect.TypeOf(c.row.New()) ||
		slices.ContainsFunc(c.row.Versions, func(v resource.Version) bool {
			return v.New != nil &&
				t == reflect.TypeOf(v.New())
		})
}

// Convert copies the object in the first argument to the second. Both have the same type, or the
// types of two versions of the resource, of its twin or of StoredForms.
func (c *convertor) Convert(in, out, _ any) error {
	src, ok := in.(resource.Object)
	dst, ok2 := out.(resource.Object)
	if !ok || !ok2 {
		return fmt.Errorf("convert %T to %T: not objects", in, out)
	}
	src, err := c.typed(src)
	if err != nil {
		return err
	}
	from, to := c.versionOf(src), c.versionOf(dst)
	switch {
	case c.isTwin(dst):
		if src, err = c.toTwin(src); err != nil {
			return err
		}
	case reflect.TypeOf(src) != reflect.TypeOf(dst) && c.holds(src) || c.dynamic && from != to:
		if src, err = c.between(src, from, to); err != nil {
			return err
		}
	case c.dynamic:
		src = src.DeepCopyObject().(resource.Object) // a later change of out's kind must not change the object in
	}
	if reflect.TypeOf(src) != reflect.TypeOf(dst) {
		kind := c.row.GroupVersionKind()
		return fmt.Errorf("converting (%s) to (%s): unknown conversion",
			strings.TrimPrefix(fmt.Sprintf("%T", in), "*"), resource.InternalName(kind))
	}
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
	return nil
}

// ConvertFieldLabel accepts the resource's selectable fields and rejects all others.
func (c *convertor) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return c.fieldLabel(label, value)
}

func (c *convertor) fieldLabel(label, value string) (string, string, error) {
	// Most kinds have neither selectable fields nor an error of their own. For these, Kubernetes'
	// default applies, which accepts metadata.namespace even if the kind is not namespaced.
	byDefault := len(c.row.SelectableFields) == 0 && c.row.UnknownField == ""
	switch {
	case label == "metadata.name", label == "metadata.namespace" && (c.row.Namespaced || byDefault),
		slices.Contains(c.row.SelectableFields, label):
		return label, value, nil
	case byDefault:
		return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name",
			"metadata.namespace")
	}
	if say := c.row.UnknownField; say != "" {
		return "", "", fmt.Errorf(say, label)
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}
