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

// write describes one create, update or delete of an object, for admission, authorization and error
// messages.
type write struct {
	registry *Registry

	// The object that is written.

	namespace, name string
	version         string
	subresource     string
	as              *Facade // presents the object as another kind; may be nil

	// The kind of write, and its options.

	operation admission.Operation
	options   runtime.Object
	dryRun    bool
	skip      bool // do not run admission; see Update.SkipAdmission

	// remade reports whether a mutating plugin changed the object. If so, the method prune drops
	// fields that the kind does not have.
	remade bool
}

// attributes returns the admission attributes for a write that replaces old by obj. Either may be
// nil.
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

// facade is like attributes, for a write through a Facade: the argument shown is the new view of
// the object as the other kind, and the argument before is the old view.
func (w *write) facade(ctx context.Context, shown, before resource.Object) admission.Attributes {
	a := w.attributes(ctx, shown, before)
	return admission.NewAttributesRecord(shown, before, w.as.Kind, a.GetNamespace(), a.GetName(),
		a.GetResource(), a.GetSubresource(),
		a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
}

// mutateFacade runs the mutating admission plugins for a write through a Facade, such as a Scale.
// They get the new view of the object.
func (w *write) mutateFacade(ctx context.Context, shown, before resource.Object) error {
	if plugin := w.mutator(); plugin != nil {
		return admit(ctx, plugin, shown, w.facade(ctx, shown, before), w.registry.facadeInterfaces())
	}
	return nil
}

// mutate runs the mutating plugins on obj. For a write through a Facade it does nothing, because
// they have already run on the view.
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

// mutator returns the mutating admission plugins, or nil if they do not run for this write.
func (w *write) mutator() admission.MutationInterface {
	plugin, ok := w.registry.cfg.Admission.(admission.MutationInterface)
	if w.skip || !ok || !plugin.Handles(w.operation) {
		return nil
	}
	wrapped, _ := admission.WithAudit(plugin).(admission.MutationInterface)
	return wrapped
}

// admit runs the mutating admission plugins on obj. attrs are the attributes of the write.
func admit(ctx context.Context, plugin admission.MutationInterface, obj resource.Object,
	attrs admission.Attributes, o admission.ObjectInterfaces) error {
	before := slices.Clone(obj.GetManagedFields())
	if err := plugin.Admit(ctx, attrs, o); err != nil {
		return err
	}
	if after := obj.GetManagedFields(); slices.Equal(before, after) {
		// The plugins have not changed managedFields.
	} else if err := managedfields.ValidateManagedFields(after); err != nil {
		obj.SetManagedFields(before)
		warning.AddWarning(ctx, "", fmt.Sprintf(".metadata.managedFields was in an invalid state after "+
			"admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
	clearKind(obj)
	return nil
}

// content returns the address of the content of an object without a Go type. If it has changed
// after a plugin ran, the plugin has replaced the content.
func content(obj resource.Object) uintptr {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return reflect.ValueOf(u.Object).Pointer()
	}
	return 0
}

// prune drops the fields that the kind does not have, if an admission plugin may have added some, or
// if the request changed the object in the form of another resource (a Facade). It runs immediately
// before the object is stored, after validation, as in Kubernetes.
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

// admitDelete runs the mutating and then the validating plugins for the deletion of old. In their
// attributes, old is the old object and the new object is nil.
func (w *write) admitDelete(ctx context.Context, old resource.Object) error {
	if plugin := w.mutator(); plugin != nil {
		if err := plugin.Admit(ctx, w.attributes(ctx, nil, old), w.registry.Interfaces()); err != nil {
			return err
		}
		clearKind(old)
	}
	return w.validate(ctx, nil, old)
}

// validate runs the validating admission plugins on a write that replaces old by obj.
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

// authorizeCreate checks that the user may create the object. It is called when an update or an
// apply is about to create an object that does not exist.
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

// forbiddenCreate returns the same error as Kubernetes' authorization filter.
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
	return apierrors.NewForbidden(schema.GroupResource{Group: a.APIGroup, Resource: a.Resource}, a.Name,
		fmt.Errorf("%s", message))
}

// interfaces implements admission.ObjectInterfaces for the objects of a resource.
type interfaces struct{ c *convertor }

// Interfaces returns the admission.ObjectInterfaces of the resource's objects.
func (r *Registry) Interfaces() admission.ObjectInterfaces { return interfaces{r.convert} }

func (i interfaces) GetObjectCreater() runtime.ObjectCreater     { return anyCreater(i) }
func (i interfaces) GetObjectTyper() runtime.ObjectTyper         { return i.c.scheme }
func (i interfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i.c }
func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor { return i.c }
func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return equivalents{i.c.row}
}

// anyCreater creates empty objects: those of the resource's kind with the function New of the kind
// table's row, and those of other kinds with the scheme.
type anyCreater struct{ c *convertor }

// New returns an empty object of a kind.
func (a anyCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if kind.Group == a.c.row.Group && kind.Kind == a.c.row.Kind {
		return a.c.New(kind)
	}
	return a.c.scheme.New(kind)
}

// equivalents implements runtime.EquivalentResourceMapper for the served versions of a resource and
// of its twin: the resource of another API group that serves the same objects.
type equivalents struct{ row *resource.Row }

// EquivalentResourcesFor lists the served versions of the resource and of its twin (the resource of
// another API group that serves the same objects), as far as they have the subresource.
func (e equivalents) EquivalentResourcesFor(gvr schema.GroupVersionResource,
	subresource string) []schema.GroupVersionResource {
	if e.rowOf(gvr) == nil {
		return nil
	}
	var out []schema.GroupVersionResource
	for _, row := range e.rows() {
		if subresource != "" && row.Subresource(subresource) == nil {
			continue
		}
		for _, v := range row.Versions {
			out = append(out, schema.GroupVersionResource{Group: row.Group, Version: v.Name, Resource: row.Resource})
		}
	}
	return out
}

// KindFor returns the kind of the resource's objects, or of the subresource's objects if
// subresource is set.
func (e equivalents) KindFor(gvr schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	row := e.rowOf(gvr)
	if row == nil {
		return schema.GroupVersionKind{}
	}
	if s := row.Subresource(subresource); s != nil && !s.Kind.Empty() {
		return s.Kind
	}
	return gvr.GroupVersion().WithKind(row.Kind)
}

// rows returns the rows of the kind table that serve the objects.
func (e equivalents) rows() []*resource.Row {
	if e.row.Twin == nil {
		return []*resource.Row{e.row}
	}
	return []*resource.Row{e.row, e.row.Twin}
}

// rowOf returns the row of the kind table for gvr, or nil if gvr is neither the resource nor its
// twin.
func (e equivalents) rowOf(gvr schema.GroupVersionResource) *resource.Row {
	for _, row := range e.rows() {
		if row.GroupResource() == gvr.GroupResource() {
			return row
		}
	}
	return nil
}

// isDryRun reports whether the options ask for a dry run.
func isDryRun(options []string) bool { return len(options) > 0 }

// tooLarge reports whether the store rejected an object because of its size.
func tooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	if s, ok := err.(apierrors.APIStatus); ok && s.Status().Code == http.StatusRequestEntityTooLarge {
		return true
	}
	return err != nil && (strings.Contains(err.Error(), "request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max"))
}

// dedupOwners removes repeated owner references from obj and adds a warning about them in the given
// format.
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

// InterfacesOf returns the admission.ObjectInterfaces of a resource's objects.
func InterfacesOf(row *resource.Row, scheme *runtime.Scheme) admission.ObjectInterfaces {
	return interfaces{newConvertor(row, scheme)}
}

// SchemeInterfaces returns the admission.ObjectInterfaces for objects of kinds without a row of the
// kind table, such as options of connections, bindings, evictions and reviews. These kinds have one
// version and no defaults.
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

// facadeInterfaces implements admission.ObjectInterfaces for the kind of a Facade. The equivalent
// resources are all versions of the resource and of its twin (the resource of another API group
// that serves the same objects).
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

// copier is a converter between objects of one type: it copies them.
type copier struct{ *runtime.Scheme }

// Convert copies the first argument to the second. Both have the same type.
func (c copier) Convert(in, out, _ any) error {
	src, dst := reflect.ValueOf(in), reflect.ValueOf(out)
	if src.Type() != dst.Type() || src.Kind() != reflect.Pointer {
		return fmt.Errorf("convert %T to %T: unknown conversion", in, out)
	}
	dst.Elem().Set(src.Elem())
	return nil
}
