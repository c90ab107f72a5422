// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/resource"
)

// write is what admission, authorization and errors are told of one write.
type write struct {
	registry        *Registry
	namespace, name string
	version         string
	subresource     string
	operation       admission.Operation
	options         runtime.Object
	dryRun          bool
	skip            bool
	as              *Facade
	remade          bool // by a mutating plugin: what the kind has no place for is there until prune
}

// attributes describes the write of obj over old to admission plugins. obj and
// old are nil interfaces when absent.
func (w *write) attributes(ctx context.Context, obj, old resource.Object) admission.Attributes {
	version := w.version
	if version == "" {
		version = w.registry.row.Version
	}
	user, _ := request.UserFrom(ctx)
	gv := schema.GroupVersion{Group: w.registry.row.Group, Version: version}
	var o, before runtime.Object
	if obj != nil {
		o = obj
	}
	if old != nil {
		before = old
	}
	name := w.name
	if name == "" && obj != nil {
		name = obj.GetName()
	}
	return admission.NewAttributesRecord(o, before, gv.WithKind(w.registry.row.Kind), w.namespace, name,
		gv.WithResource(w.registry.row.Resource), w.subresource, w.operation, w.options, w.dryRun, user)
}

// facade describes the write of what looks like shown over what looked like before.
func (w *write) facade(ctx context.Context, shown, before resource.Object) admission.Attributes {
	a := w.attributes(ctx, shown, before)
	return admission.NewAttributesRecord(shown, before, w.as.Kind, a.GetNamespace(), a.GetName(), a.GetResource(), a.GetSubresource(),
		a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
}

// mutateFacade runs the mutating plugins over what an object looks like.
func (w *write) mutateFacade(ctx context.Context, shown, before resource.Object) error {
	if plugin := w.mutator(); plugin != nil {
		return admit(ctx, plugin, shown, w.facade(ctx, shown, before), w.registry.facadeInterfaces())
	}
	return nil
}

// mutate runs the mutating plugins over obj. Over what it looks like, if it has
// another face, they have run when that was changed.
func (w *write) mutate(ctx context.Context, obj, old resource.Object) error {
	plugin := w.mutator()
	if plugin == nil || w.as != nil {
		return nil
	}
	had := content(obj)
	if err := admit(ctx, plugin, obj, w.attributes(ctx, obj, old), w.registry.Interfaces()); err != nil {
		return err
	}
	w.remade = content(obj) != had
	return nil
}

// mutator returns the mutating plugins; nil if none is to be asked.
func (w *write) mutator() admission.MutationInterface {
	plugin, ok := w.registry.cfg.Admission.(admission.MutationInterface)
	if w.skip || !ok || !plugin.Handles(w.operation) {
		return nil
	}
	wrapped, _ := admission.WithAudit(plugin).(admission.MutationInterface)
	return wrapped
}

// admit runs the mutating plugins over obj, of which attrs tell.
func admit(ctx context.Context, plugin admission.MutationInterface, obj resource.Object, attrs admission.Attributes, o admission.ObjectInterfaces) error {
	before := slices.Clone(obj.GetManagedFields())
	if err := plugin.Admit(ctx, attrs, o); err != nil {
		return err
	}
	if after := obj.GetManagedFields(); slices.Equal(before, after) {
		// Nobody touched what we have just written.
	} else if err := managedfields.ValidateManagedFields(after); err != nil {
		obj.SetManagedFields(before)
		warning.AddWarning(ctx, "", fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
	clearKind(obj)
	return nil
}

// content tells the content of an object without a Go type from other content: plugins
// that change it do not do so in place.
func content(obj resource.Object) uintptr {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return reflect.ValueOf(u.Object).Pointer()
	}
	return 0
}

// prune drops what plugins, or who changed what the object looks like, added that the
// kind has no place for. That happens when the object is stored: it is judged with all of it.
func (w *write) prune(obj resource.Object) error {
	structure := w.registry.cfg.Structure
	if structure == nil || !w.remade && w.as == nil {
		return nil
	}
	version := w.version
	if version == "" {
		version = w.registry.row.Version
	}
	_, err := structure(version, obj, false)
	return err
}

// admitDelete asks the mutating plugins, and then the validating ones, whether old may
// go. All of them see it as the old object, and there is no new one to be changed.
func (w *write) admitDelete(ctx context.Context, old resource.Object) error {
	if plugin := w.mutator(); plugin != nil {
		if err := plugin.Admit(ctx, w.attributes(ctx, nil, old), w.registry.Interfaces()); err != nil {
			return err
		}
		clearKind(old)
	}
	return w.validate(ctx, nil, old)
}

// validate runs the validating plugins over obj and old, which they do not change
// but for their kinds.
func (w *write) validate(ctx context.Context, obj, old resource.Object) error {
	plugin, ok := w.registry.cfg.Admission.(admission.ValidationInterface)
	if w.skip || !ok || !plugin.Handles(w.operation) {
		return nil
	}
	wrapped, _ := admission.WithAudit(plugin).(admission.ValidationInterface)
	if w.as != nil {
		shown, err := w.as.Of(obj)
		if err != nil {
			return err
		}
		before, err := w.as.Of(old)
		if err != nil {
			return err
		}
		return wrapped.Validate(ctx, w.facade(ctx, shown, before), w.registry.facadeInterfaces())
	}
	err := wrapped.Validate(ctx, w.attributes(ctx, obj, old), w.registry.Interfaces())
	for _, seen := range []resource.Object{obj, old} {
		if seen != nil {
			clearKind(seen)
		}
	}
	return err
}

// authorizeCreate asks whether the user may create what an update or an apply
// did not find.
func (w *write) authorizeCreate(ctx context.Context, verb string) error {
	if w.skip || w.registry.cfg.Authorizer == nil {
		return nil
	}
	user, _ := request.UserFrom(ctx)
	attrs := authorizer.AttributesRecord{
		User: user, Verb: verb, ResourceRequest: true,
		APIGroup: w.registry.row.Group, APIVersion: w.version, Resource: w.registry.row.Resource,
		Subresource: w.subresource, Namespace: w.namespace, Name: w.name,
	}
	if info, ok := request.RequestInfoFrom(ctx); ok {
		attrs.Path = info.Path
	}
	decision, reason, err := w.registry.cfg.Authorizer.Authorize(ctx, attrs)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return forbiddenCreate(attrs, reason)
}

// forbiddenCreate words the refusal as Kubernetes' authorization filter does.
func forbiddenCreate(a authorizer.AttributesRecord, reason string) error {
	user := ""
	if a.User != nil {
		user = a.User.GetName()
	}
	message := fmt.Sprintf("User %q cannot %s resource %q in API group %q", user, a.Verb, a.Resource, a.APIGroup)
	if a.Namespace != "" {
		message += fmt.Sprintf(" in the namespace %q", a.Namespace)
	} else {
		message += " at the cluster scope"
	}
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.APIGroup, Resource: a.Resource}, a.Name, fmt.Errorf("%s", message))
}

// interfaces is what plugins convert, create and default objects of the row with.
type interfaces struct{ c *convertor }

// Interfaces returns what admission plugins handle the row's objects with.
func (r *Registry) Interfaces() admission.ObjectInterfaces { return interfaces{r.convert} }

func (i interfaces) GetObjectCreater() runtime.ObjectCreater     { return anyCreater(i) }
func (i interfaces) GetObjectTyper() runtime.ObjectTyper         { return i.c.scheme }
func (i interfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i.c }
func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor { return i.c }
func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return equivalents{i.c.row}
}

// anyCreater makes objects of the row, and of other kinds by the scheme.
type anyCreater struct{ c *convertor }

// New makes an empty object of kind.
func (a anyCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if kind.Group == a.c.row.Group && kind.Kind == a.c.row.Kind {
		return a.c.New(kind)
	}
	return a.c.scheme.New(kind)
}

// equivalents answers in which versions the row's resource is served.
type equivalents struct{ row *resource.Row }

// EquivalentResourcesFor lists the served versions of the resource.
func (e equivalents) EquivalentResourcesFor(gvr schema.GroupVersionResource, _ string) []schema.GroupVersionResource {
	if gvr.GroupResource() != e.row.GroupResource() {
		return nil
	}
	out := make([]schema.GroupVersionResource, 0, len(e.row.Versions))
	for _, v := range e.row.Versions {
		out = append(out, schema.GroupVersionResource{Group: e.row.Group, Version: v.Name, Resource: e.row.Resource})
	}
	return out
}

// KindFor is the kind the resource, or its subresource, takes.
func (e equivalents) KindFor(gvr schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	if gvr.GroupResource() != e.row.GroupResource() {
		return schema.GroupVersionKind{}
	}
	for i := range e.row.Subresources {
		if s := &e.row.Subresources[i]; s.Name == subresource && !s.Kind.Empty() {
			return s.Kind
		}
	}
	return gvr.GroupVersion().WithKind(e.row.Kind)
}

// isDryRun reports whether options ask for no effect.
func isDryRun(options []string) bool { return len(options) > 0 }

// tooLarge reports whether the store refused an object for its size.
func tooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	if s, ok := err.(apierrors.APIStatus); ok && s.Status().Code == http.StatusRequestEntityTooLarge {
		return true
	}
	return err != nil && (strings.Contains(err.Error(), "request is too large") || strings.Contains(err.Error(), "trying to send message larger than max"))
}

// dedupOwners drops repeated owner references and warns of them.
func dedupOwners(ctx context.Context, obj metav1.Object, format string) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	kept, repeated := refs[:0:0], []string(nil)
	seen := make(map[types.UID][]metav1.OwnerReference, len(refs))
next:
	for _, ref := range refs {
		for _, other := range seen[ref.UID] {
			if sameOwner(other, ref) {
				repeated = append(repeated, string(ref.UID))
				continue next
			}
		}
		seen[ref.UID] = append(seen[ref.UID], ref)
		kept = append(kept, ref)
	}
	if len(repeated) > 0 {
		warning.AddWarning(ctx, "", fmt.Sprintf(format, strings.Join(repeated, ", ")))
		obj.SetOwnerReferences(kept)
	}
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		sameBool(a.Controller, b.Controller) && sameBool(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

func sameBool(a, b *bool) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// InterfacesOf returns what admission plugins handle a row's objects with.
func InterfacesOf(row *resource.Row, scheme *runtime.Scheme) admission.ObjectInterfaces {
	return interfaces{newConvertor(row, scheme)}
}

// SchemeInterfaces returns what admission plugins handle objects with that are
// not a row's own: options of connections, bindings, evictions, reviews. They
// have one version each, and nothing to default.
func SchemeInterfaces(scheme *runtime.Scheme) admission.ObjectInterfaces {
	return schemeInterfaces{scheme}
}

type schemeInterfaces struct{ scheme *runtime.Scheme }

func (i schemeInterfaces) GetObjectCreater() runtime.ObjectCreater     { return i.scheme }
func (i schemeInterfaces) GetObjectTyper() runtime.ObjectTyper         { return i.scheme }
func (i schemeInterfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i.scheme }
func (i schemeInterfaces) GetObjectConvertor() runtime.ObjectConvertor { return copier{i.scheme} }
func (i schemeInterfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return runtime.NewEquivalentResourceRegistry()
}

// facadeInterfaces are for what objects of a row look like, which is of one kind at the
// paths of all of the row's versions.
type facadeInterfaces struct {
	schemeInterfaces
	row *resource.Row
}

func (r *Registry) facadeInterfaces() admission.ObjectInterfaces {
	return facadeInterfaces{schemeInterfaces{r.cfg.Scheme}, r.row}
}

func (i facadeInterfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return equivalents{i.row}
}

// copier converts between objects of one type.
type copier struct{ *runtime.Scheme }

// Convert copies in to out, which are of the same type.
func (c copier) Convert(in, out, _ any) error {
	src, dst := reflect.ValueOf(in), reflect.ValueOf(out)
	if src.Type() != dst.Type() || src.Kind() != reflect.Pointer {
		return fmt.Errorf("convert %T to %T: unknown conversion", in, out)
	}
	dst.Elem().Set(src.Elem())
	return nil
}
