// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/ownership"
	"keelson.dev/apiserver/patch"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/tracing"
)

// Patch applies p and stores the result. A server-side apply creates the object if it does not
// exist; other patches do not.
func (r *Registry) Patch(ctx context.Context, p Patch) (rec *store.Record, created bool, err error) {
	v, err := r.convert.version(p.Version)
	if err != nil {
		return nil, false, err
	}
	u := &Update{
		Namespace: p.Namespace, Name: p.Name, Subresource: p.Subresource, Version: p.Version,
		Options: metav1.UpdateOptions{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"},
			DryRun:   p.Options.DryRun, FieldManager: p.Options.FieldManager, FieldValidation: p.Options.FieldValidation,
		},
		CreateAbsent: p.Type == types.ApplyYAMLPatchType,
	}
	up, err := r.newUpdate(u)
	if err != nil {
		return nil, false, err
	}
	up.mayCreate = u.CreateAbsent && u.Subresource == ""
	up.keepManaged = p.Type == types.ApplyYAMLPatchType
	pp := &patching{
		r: r, p: &p, v: v, manager: r.managerOf(p.Version, p.Subresource), up: up,
		strict: patch.Strict{Mode: p.Options.FieldValidation, Warn: func(errs []error) { WarnStrict(ctx, errs) }},
	}
	if pp.strict.Mode == "" {
		pp.strict.Mode = metav1.FieldValidationWarn
	}
	up.transform = pp.apply
	return up.run(r.context(ctx, p.Namespace))
}

// patching is one patch in progress.
type patching struct {
	r       *Registry
	p       *Patch
	v       *resource.Version
	manager *manager
	up      *updating
	strict  patch.Strict

	versionless bool // the patch has removed the apiVersion of a custom resource
}

// apply computes the patched object from cur, and checks that it has the namespace and name in the
// request's path.
func (pp *patching) apply(ctx context.Context, cur resource.Object) (obj resource.Object, err error) {
	span := tracing.Current(ctx)
	span.Event("About to apply patch")
	switch pp.p.Type {
	case types.ApplyYAMLPatchType:
		obj, err = pp.configuration(ctx, cur)
	case types.JSONPatchType, types.MergePatchType:
		obj, err = pp.json(ctx, cur)
	case types.StrategicMergePatchType:
		obj, err = pp.strategic(ctx, cur)
	default:
		return nil, fmt.Errorf("%v: unimplemented patch type", pp.p.Type)
	}
	if err != nil {
		return nil, err
	}
	clearKind(obj)
	if cur == nil && obj.GetUID() != "" {
		return nil, apierrors.NewConflict(pp.r.row.GroupResource(), pp.p.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := pp.r.matchNamespace(pp.p.Namespace, obj); err != nil {
		return nil, err
	}
	if err := CheckName(obj, pp.p.Namespace, pp.p.Name); err != nil {
		return nil, err
	}
	if pp.versionless {
		return nil, apierrors.NewInternalError(runtime.NewMissingVersionErr("object has no apiVersion field"))
	}
	span.Event("About to check admission control") // the next step, see updating.next
	return obj, nil
}

// CheckName returns an error unless obj is the object that the path names.
func CheckName(obj resource.Object, namespace, name string) error {
	switch {
	case obj.GetName() == "":
		return apierrors.NewBadRequest(
			fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	case obj.GetName() != name:
		return apierrors.NewBadRequest(
			fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), name))
	case namespace != "" && obj.GetNamespace() != "" && obj.GetNamespace() != namespace:
		return apierrors.NewBadRequest(
			fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)",
				obj.GetNamespace(), namespace))
	}
	return nil
}

// versioned returns a copy of cur in the request's version, with its kind set.
func (pp *patching) versioned(cur resource.Object) (resource.Object, error) {
	obj, err := pp.r.convert.fromStorage(cur.DeepCopyObject().(resource.Object), pp.v)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(pp.kind())
	return obj, nil
}

func (pp *patching) kind() schema.GroupVersionKind {
	gvk := pp.r.row.GroupVersionKind()
	if pp.v != nil {
		gvk.Version = pp.v.Name
	}
	return gvk
}

// finish applies defaults to a patched object, converts it to the storage version, and records the
// manager that changed cur to obj.
func (pp *patching) finish(ctx context.Context, obj, cur resource.Object) (resource.Object, error) {
	// Do this first, because recording the manager sets the version.
	pp.versionless = pp.r.dynamic && obj.GetObjectKind().GroupVersionKind().Version == ""
	pp.r.convert.defaults(obj, pp.v)
	obj, err := pp.r.convert.toStorage(obj, pp.v)
	if err != nil {
		return nil, err
	}
	clearKind(obj)
	if pp.up.dropManaged {
		return obj, nil
	}
	return pp.manager.update(ctx, cur, obj, ManagerName(ctx, pp.p.Options.FieldManager)), nil
}

func (pp *patching) json(ctx context.Context, cur resource.Object) (resource.Object, error) {
	if cur == nil {
		return nil, apierrors.NewNotFound(pp.r.row.GroupResource(), pp.p.Name)
	}
	if pp.p.Type == types.MergePatchType {
		if obj, ok := pp.typed(cur, patch.Merge, compacted); ok {
			return pp.finish(ctx, obj, cur)
		}
	}
	versioned, err := pp.versioned(cur)
	if err != nil {
		return nil, err
	}
	doc, err := json.Marshal(versioned)
	if err != nil {
		return nil, err
	}
	out := pp.r.convert.newObject(pp.v)
	err = patch.JSON(pp.p.Type, doc, pp.p.Data, pp.strict, func(patched []byte) error {
		return pp.decode(patched, out)
	})
	if err != nil {
		return nil, err
	}
	return pp.finish(ctx, out, cur)
}

// typed copies cur, and applies the patch to the copy by calling merge. The objects are not encoded
// as JSON. typed returns false if cur has no Go type in the request's version, or if merge does not
// support the patch. Kubernetes encodes cur and so changes the spelling of runtime.RawExtension
// values; typed changes them in the same way (see raw.go).
func (pp *patching) typed(cur resource.Object, merge func(obj any, patch []byte) bool,
	spelt spelling) (resource.Object, bool) {
	if pp.r.dynamic || pp.v != nil && pp.v.FromStorage != nil {
		return nil, false
	}
	obj := cur.DeepCopyObject().(resource.Object)
	if !merge(obj, pp.p.Data) || pp.r.readable(obj) != nil {
		return nil, false
	}
	pp.r.respell(obj, spelt)
	return obj, true
}

// readable returns the error of the resource's function Readable for a patched object, or nil.
func (r *Registry) readable(obj resource.Object) error {
	if r.row.Readable == nil {
		return nil
	}
	return r.row.Readable(obj)
}

func (pp *patching) strategic(ctx context.Context, cur resource.Object) (resource.Object, error) {
	if cur == nil {
		return nil, apierrors.NewNotFound(pp.r.row.GroupResource(), pp.p.Name)
	}
	if obj, ok := pp.typed(cur, patch.StrategicMerge, sorted); ok {
		return pp.finish(ctx, obj, cur)
	}
	versioned, err := pp.versioned(cur)
	if err != nil {
		return nil, err
	}
	out := pp.r.convert.newObject(pp.v)
	if err := patch.Strategic(versioned, out, pp.p.Data, pp.strict); err != nil {
		return nil, err
	}
	if err := pp.r.readable(out); err != nil {
		return nil, err
	}
	return pp.finish(ctx, out, cur)
}

// errNoApply is returned for a server-side apply if the server keeps no managedFields.
var errNoApply = errors.New("server-side apply needs managed fields, which are not kept for this resource")

// configuration returns the object that results from a server-side apply.
func (pp *patching) configuration(ctx context.Context, cur resource.Object) (resource.Object, error) {
	if pp.manager == nil {
		return nil, errNoApply
	}
	live := cur
	if live == nil {
		empty, err := pp.r.convert.New(pp.r.row.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		live = empty.(resource.Object)
	}
	if obj, ok := pp.plain(ctx, live); ok {
		return obj, nil
	}
	config := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(pp.p.Data, &config.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if cur != nil {
		live = live.DeepCopyObject().(resource.Object)
	}
	obj, err := pp.manager.apply(live, config, pp.p.Options.FieldManager, pp.force())
	if err != nil {
		return nil, err
	}
	if pp.strict.On() {
		if err := yaml.UnmarshalStrict(pp.p.Data, &map[string]any{}); err != nil {
			if pp.strict.Mode == metav1.FieldValidationStrict {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
			}
			WarnStrict(ctx, []error{err})
		}
	}
	return obj, nil
}

func (pp *patching) force() bool { return pp.p.Options.Force != nil && *pp.p.Options.Force }

// plain makes a server-side apply in the most frequent case: a simple document, an object with a Go
// type, and no conflict. It does not modify live. In all other cases it returns false.
func (pp *patching) plain(ctx context.Context, live resource.Object) (resource.Object, bool) {
	if pp.manager.keeper == nil {
		return nil, false
	}
	fields, ok := patch.Document(pp.p.Data)
	if !ok {
		return nil, false
	}
	out, changed, ok := pp.manager.keeper.Apply(live, ownership.Configuration{
		Fields: fields, Data: pp.p.Data, Manager: pp.p.Options.FieldManager, Force: pp.force(),
	}, resource.Time(ctx))
	if !ok {
		return nil, false
	}
	if changed {
		pp.r.respell(out, sorted)
		pp.r.convert.defaults(out, pp.v)
	}
	return clearKind(out), true
}

// WarnStrict adds the findings of strict decoding as warnings.
func WarnStrict(ctx context.Context, findings []error) {
	for _, f := range findings {
		for _, line := range strings.Split(strictLines(f.Error()), "\n") {
			warning.AddWarning(ctx, "", line)
		}
	}
}

// strictLines removes the YAML decoder's introductory text from its findings.
func strictLines(s string) string {
	const preamble, long = "yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n"
	for _, p := range []string{long, preamble} {
		if rest, ok := strings.CutPrefix(s, p); ok {
			lines := strings.Split(rest, "\n")
			for i := range lines {
				lines[i] = strings.TrimSpace(lines[i])
			}
			return strings.Join(lines, "\n")
		}
	}
	return s
}
