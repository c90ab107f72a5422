// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// modified is Kubernetes' message for a write of an object that another client has changed
// meanwhile.
const modified = "the object has been modified; please apply your changes to the latest version and try again"

// Update applies u.Transform and stores the result. created reports whether the object did not
// exist before.
//
// If the update removes the last finalizer of an object that is being deleted, Update removes the
// object. The record is then the state that Transform returned, with the revision that the object
// had before.
func (r *Registry) Update(ctx context.Context, u Update) (rec *store.Record, created bool, err error) {
	up, err := r.updateOf(&u)
	if err != nil {
		return nil, false, err
	}
	return up.run(r.context(ctx, u.Namespace))
}

// updateOf returns the update that applies u.Transform.
func (r *Registry) updateOf(u *Update) (*updating, error) {
	u.Options.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}
	up, err := r.newUpdate(u)
	if err != nil {
		return nil, err
	}
	up.transform = func(ctx context.Context, cur resource.Object) (resource.Object, error) {
		live := cur
		switch {
		case u.Blind:
			cur = nil
		case cur != nil:
			cur = cur.DeepCopyObject().(resource.Object)
		}
		obj, err := up.change(ctx, cur)
		if err != nil {
			return nil, err
		}
		clearKind(obj)
		dedupOwners(ctx, obj, repeatedOwners)
		if live == nil {
			live = r.row.New()
		}
		if up.dropManaged || u.OwnFields {
			return obj, nil
		}
		return r.managerOf(u.Version, u.Subresource).update(ctx, live, obj, ManagerName(ctx, u.Options.FieldManager)), nil
	}
	return up, nil
}

// change computes the new object with the update's function Transform or, for a view such as Scale,
// with the Facade.
func (up *updating) change(ctx context.Context, cur resource.Object) (resource.Object, error) {
	if up.u.As == nil {
		return up.u.Transform(ctx, cur)
	}
	return up.u.As.Change(ctx, cur, func(shown, before resource.Object) error {
		return up.write(admission.Update).mutateFacade(ctx, shown, before)
	})
}

// updating is one update in progress. Registry.Update and Registry.Patch make one for each call.
type updating struct {
	r             *Registry
	u             *Update
	sub           *resource.RowSub
	preconditions *metav1.Preconditions
	// transform computes the new object, including its managedFields. It must not modify cur, which
	// is nil if the object does not exist.
	transform   UpdateFunc
	mayCreate   bool
	dropManaged bool // drop managedFields: the object was too large to store with them
	keepManaged bool // do not retry without managedFields: an apply has to record which fields it owns
	createOpts  *metav1.CreateOptions
	dry         bool
}

var (
	// errGone means that the updated object has to be removed.
	errGone = errors.New("object has no finalizers left")
	// errOvertaken is returned if another client writes the object before the update can remove it.
	errOvertaken = errors.New("object has changed")
)

func (r *Registry) newUpdate(u *Update) (*updating, error) {
	up := &updating{
		r: r, u: u, preconditions: u.Preconditions,
		mayCreate: u.Subresource == "" && (u.CreateAbsent || r.row.AllowCreateOnUpdate),
		dry:       isDryRun(u.Options.DryRun),
		createOpts: &metav1.CreateOptions{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"},
			DryRun:   u.Options.DryRun, FieldManager: u.Options.FieldManager, FieldValidation: u.Options.FieldValidation,
		},
	}
	if u.Subresource == "" {
		return up, nil
	}
	for i := range r.row.Subresources {
		if s := &r.row.Subresources[i]; s.Name == u.Subresource {
			if s.View {
				up.sub = s
			}
			return up, nil
		}
	}
	return nil, apierrors.NewNotFound(r.row.GroupResource(), u.Name)
}

func (up *updating) run(ctx context.Context) (*store.Record, bool, error) {
	rec, created, err := up.try(ctx)
	if tooLarge(err) && !up.keepManaged {
		up.dropManaged = true
		return up.try(ctx)
	}
	return rec, created, err
}

// try updates or creates the object. It starts again if another client has created or deleted the
// object meanwhile.
func (up *updating) try(ctx context.Context) (*store.Record, bool, error) {
	r, key := up.r, up.r.key(up.u.Namespace, up.u.Name)
	for {
		rec, err := up.update(ctx, key)
		if !apierrors.IsNotFound(err) || !up.absent(ctx, key) {
			return rec, false, err
		}
		if !up.mayCreate {
			return nil, false, apierrors.NewNotFound(r.row.GroupResource(), up.u.Name)
		}
		rec, err = up.create(ctx)
		if !apierrors.IsAlreadyExists(err) || up.absent(ctx, key) {
			return rec, err == nil, err
		}
	}
}

// absent reports whether the object does not exist. It reads the store, because a NotFound error
// may also come from a hook or a plugin.
func (up *updating) absent(ctx context.Context, key string) bool {
	_, err := up.r.store.Get(ctx, key, "")
	return apierrors.IsNotFound(err)
}

func (up *updating) write(operation admission.Operation) *write {
	w := &write{
		registry: up.r, namespace: up.u.Namespace, name: up.u.Name, version: up.u.Version,
		subresource: up.u.Subresource, operation: operation, dryRun: up.dry, skip: up.u.SkipAdmission,
		options: &up.u.Options, as: up.u.As,
	}
	if operation == admission.Create {
		w.options = up.createOpts
	}
	if up.r.row.NamespaceItself {
		w.namespace = up.u.Name
	}
	return w
}

// update writes an object that exists.
func (up *updating) update(ctx context.Context, key string) (*store.Record, error) {
	var last, old resource.Object
	finish := func(bool) {}
	apply := func(ctx context.Context, cur *store.Record) (resource.Object, error) {
		finish(false)
		finish = func(bool) {}
		existing, err := cur.Object()
		if err != nil {
			return nil, err
		}
		obj, done, err := up.next(ctx, existing)
		if done != nil {
			finish = done
		}
		last, old = obj, existing
		if err != nil {
			return nil, err
		}
		return obj, nil
	}
	rec, err := up.store(ctx, key, apply)
	for errors.Is(err, errGone) {
		if rec, err = up.remove(ctx, key, last, old); errors.Is(err, errOvertaken) {
			rec, err = up.store(ctx, key, apply)
		}
	}
	finish(err == nil)
	if err != nil {
		return nil, err
	}
	if !up.dry && up.r.row.Hooks.AfterUpdate != nil {
		up.r.row.Hooks.AfterUpdate(ctx, last, old)
	}
	return rec, nil
}

func (up *updating) store(ctx context.Context, key string, apply store.UpdateFunc) (*store.Record, error) {
	if !up.dry {
		return up.r.store.Update(ctx, key, apply)
	}
	cur, err := up.r.store.Get(ctx, key, "")
	if err != nil {
		return nil, err
	}
	obj, err := apply(ctx, cur)
	if err != nil {
		return nil, err
	}
	return up.r.makeRecord(key, obj, cur.Revision)
}

// next computes the new object from existing, which it does not modify. The result done is the
// function that the BeforeUpdate hook has returned; it may be nil.
func (up *updating) next(ctx context.Context, existing resource.Object) (obj resource.Object, done func(bool),
	err error) {
	r := up.r
	if err := r.CheckPreconditions(existing, up.preconditions, up.dry); err != nil {
		return nil, nil, err
	}
	obj, err = up.transform(ctx, existing)
	if err != nil {
		return nil, nil, err
	}
	w := up.write(admission.Update)
	if err := w.mutate(ctx, obj, existing); err != nil {
		return nil, nil, err
	}
	dedupOwners(ctx, obj, repeatedOwnersAfter)
	if up.dropManaged {
		obj.SetManagedFields(nil)
	}
	if err := r.checkVersion(up.u, obj, existing); err != nil {
		return nil, nil, err
	}
	if r.row.Hooks.BeforeUpdate != nil && up.u.Subresource == "" {
		if done, err = r.row.Hooks.BeforeUpdate(ctx, obj, existing, up.dry); err != nil {
			return nil, nil, err
		}
	}
	if err := up.prepare(ctx, obj, existing); err != nil {
		return nil, done, err
	}
	keepTimes(obj, existing)
	if !up.dry { // the response to a dry run contains the field, because nothing is stored
		obj.SetSelfLink("")
	}
	if err := w.validate(ctx, obj, existing); err != nil {
		return nil, done, err
	}
	if err := w.prune(obj); err != nil {
		return nil, done, err
	}
	if r.endsByUpdate(obj, existing) {
		return obj, done, errGone
	}
	return obj, done, nil
}

// checkVersion implements optimistic locking: it rejects the update u to obj if the resourceVersion of obj
// is not that of existing.
func (r *Registry) checkVersion(u *Update, obj, existing resource.Object) error {
	if obj.GetResourceVersion() == existing.GetResourceVersion() {
		return nil
	}
	have, err := parseRevision(obj.GetResourceVersion())
	switch {
	case err != nil:
		return err // err has no Status, so clients get status code 500, as in Kubernetes
	case have != 0 && have == uint64(revisionOf(existing)):
		return nil
	case have != 0:
		return apierrors.NewConflict(r.row.GroupResource(), u.Name, errors.New(modified))
	case r.row.UpdatesUnconditionally(u.Version):
		obj.SetResourceVersion(existing.GetResourceVersion())
		return nil
	}
	// In this error, Kubernetes uses the resource as the kind, and a number as the value.
	errs := field.ErrorList{field.Invalid(field.NewPath("metadata").Child("resourceVersion"), 0,
		"must be specified for an update")}
	return apierrors.NewInvalid(schema.GroupKind{Group: r.row.Group, Kind: r.row.Resource}, u.Name, errs)
}

// CheckPreconditions returns an error unless p holds for obj. The error is the one that Kubernetes'
// storage returns, which contains the key in etcd.
func (r *Registry) CheckPreconditions(obj resource.Object, p *metav1.Preconditions, dryRun bool) error {
	if p == nil {
		return nil
	}
	finding := ""
	switch {
	case p.UID != nil && *p.UID != obj.GetUID():
		finding = fmt.Sprintf("UID in precondition: %v, UID in object meta: %v", *p.UID, obj.GetUID())
	case p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion():
		finding = fmt.Sprintf("ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*p.ResourceVersion, obj.GetResourceVersion())
	default:
		return nil
	}
	root := r.cfg.KeyRoot
	if dryRun {
		root = "" // the root is a part of the key in the store, which a dry run does not reach
	}
	return apierrors.NewConflict(r.row.GroupResource(), obj.GetName(), fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: "+
			"Precondition failed: %s",
		root, r.row.StoragePrefix, r.key(obj.GetNamespace(), obj.GetName()), finding))
}

// prepare applies the kind's rules for updates.
func (up *updating) prepare(ctx context.Context, obj, old resource.Object) error {
	r, row := up.r, up.r.row
	if err := r.matchNamespace(request.NamespaceValue(ctx), obj); err != nil {
		return err
	}
	obj.SetGeneration(old.GetGeneration())
	prepare, validate, warnings, checks := row.PrepareUpdate, row.ValidateUpdate, row.Warnings, row.MetaOnUpdate
	if up.sub != nil {
		prepare, validate, warnings, checks = up.sub.PrepareUpdate, up.sub.ValidateUpdate, up.sub.Warnings,
			up.sub.MetaOnUpdate
	}
	if prepare != nil {
		prepare(ctx, obj, old)
	}
	keepSystemFields(obj, old)
	errs := append(r.validateMetaUpdate(obj, old, checks), r.validateKind(obj)...)
	if validate != nil {
		errs = append(errs, validate(ctx, obj, old)...)
	}
	if len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	r.warn(ctx, warnings, obj, old)
	if row.Canonicalize != nil {
		row.Canonicalize(obj)
	}
	return nil
}

// keepSystemFields restores metadata that an update cannot change.
func keepSystemFields(obj, old resource.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		obj.SetCreationTimestamp(created)
	}
	if !old.GetDeletionTimestamp().IsZero() {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	}
	if old.GetDeletionGracePeriodSeconds() != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
}

// validateMetaUpdate returns the errors in the metadata of obj, which replaces old.
func (r *Registry) validateMetaUpdate(obj, old resource.Object, checks resource.MetaChecks) field.ErrorList {
	meta := field.NewPath("metadata")
	suspect := naming.Suspect{Object: obj}
	errs := validation.ValidateObjectMetaAccessor(suspect, r.row.Namespaced, path.ValidatePathSegmentName, meta)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(suspect, old, meta)...)
	switch checks {
	case resource.CheckNameAndFinalizers:
		errs = append(errs, r.validateMeta(obj)...)
	case resource.CheckFinalizers:
		errs = append(errs, r.validateFinalizers(obj)...)
	}
	return errs
}

// endsByUpdate reports whether the update from old to obj leaves an object that is being deleted
// and has no finalizers, grace period or hook that keeps it, so that it has to be removed.
func (r *Registry) endsByUpdate(obj, old resource.Object) bool {
	if len(obj.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	if keep := r.row.Hooks.KeepOnUpdate; keep != nil && keep(obj, old) {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// remove removes an object that nothing keeps after the update. The record is the state that the
// update computed. As in Kubernetes, it has the resourceVersion of the stored object.
func (up *updating) remove(ctx context.Context, key string, obj, old resource.Object) (*store.Record, error) {
	r := up.r
	if up.dry {
		return r.makeRecord(key, obj, revisionOf(old))
	}
	_, err := r.store.Delete(ctx, key, func(cur *store.Record) error {
		if cur.Revision != revisionOf(old) {
			return errOvertaken
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if r.row.Hooks.AfterDelete != nil {
		r.row.Hooks.AfterDelete(ctx, obj)
	}
	return r.makeRecord(key, obj, revisionOf(old))
}

// create creates the object of an update, because it does not exist.
func (up *updating) create(ctx context.Context) (*store.Record, error) {
	r := up.r
	if p := up.preconditions; p != nil && p.UID != nil {
		nothing := r.row.New()
		nothing.SetNamespace(up.u.Namespace)
		nothing.SetName(up.u.Name)
		return nil, r.CheckPreconditions(nothing, p, up.dry)
	}
	obj, err := up.transform(ctx, nil)
	if err != nil {
		return nil, err
	}
	clearServerFields(obj)
	w := up.write(admission.Create)
	if err := w.mutate(ctx, obj, nil); err != nil {
		return nil, err
	}
	dedupOwners(ctx, obj, repeatedOwnersAfter)
	if up.dropManaged {
		obj.SetManagedFields(nil)
	}
	if _, err := parseRevision(obj.GetResourceVersion()); err != nil {
		return nil, err
	}
	if err := w.authorizeCreate(ctx, "create"); err != nil {
		return nil, err
	}
	if !up.dry { // the response to a dry run has the resourceVersion of the request
		obj.SetResourceVersion("")
	}
	return r.create(ctx, w, obj)
}
