// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

var (
	errDeleteNow     = errors.New("delete now")
	metaDeleteKind   = schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}
	errNoGracePeriod = errors.New("options.GracePeriodSeconds should not be nil")
)

// Delete removes an object. If finalizers or a grace period keep it, Delete marks it as being
// deleted instead. The result gone reports whether the object was removed. The record is the last
// state of the object, or the marked state. If a dry run would only remove the garbage collector's
// finalizers and then the object, the record is an empty object without a revision.
func (r *Registry) Delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) (
	rec *store.Record, gone bool, err error) {
	return r.DeleteIn(ctx, r.row.Version, namespace, name, options)
}

// DeleteIn is like Delete, for a request in the given served version.
func (r *Registry) DeleteIn(ctx context.Context, version, namespace, name string,
	options metav1.DeleteOptions) (rec *store.Record, gone bool, err error) {
	d, err := r.deletion(version, namespace, name, options)
	if err != nil {
		return nil, false, err
	}
	return d.run(r.context(ctx, namespace))
}

// DeleteAdmitted is like Delete, but does not run admission. It is for deletions that admission has
// already accepted as another operation, such as an eviction.
func (r *Registry) DeleteAdmitted(ctx context.Context, namespace, name string, options metav1.DeleteOptions) (
	rec *store.Record, gone bool, err error) {
	d, err := r.deletion(r.row.Version, namespace, name, options)
	if err != nil {
		return nil, false, err
	}
	d.w.skip = true
	return d.run(r.context(ctx, namespace))
}

// deletion prepares the deletion of one object. It returns an error if the options are invalid.
func (r *Registry) deletion(version, namespace, name string, options metav1.DeleteOptions) (*deletion, error) {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "DeleteOptions"}
	if errs := validation.ValidateDeleteOptions(&options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metaDeleteKind, "", errs)
	}
	d := &deletion{r: r, key: r.key(namespace, name), name: name, options: &options, dry: isDryRun(options.DryRun)}
	d.w = &write{
		registry: r, namespace: namespace, name: name, version: version,
		operation: admission.Delete, options: &options, dryRun: d.dry,
	}
	if r.row.NamespaceItself {
		d.w.namespace = name
	}
	return d, nil
}

// deletion is the deletion of one object, in progress.
type deletion struct {
	r         *Registry
	key, name string
	options   *metav1.DeleteOptions
	w         *write
	dry       bool
	first     *updating // an update that is stored together with the deletion timestamp, or nil
	ending    types.UID // uid of the object that was marked; no other object may be removed
	seen      cachedObject
}

// cachedObject is an object that was read, with its revision.
type cachedObject struct {
	revision int64
	obj      store.Object
}

func (d *deletion) run(ctx context.Context) (*store.Record, bool, error) {
	rec, err := d.r.store.Get(ctx, d.key, "")
	if err != nil {
		return nil, false, err
	}
	obj, err := d.read(rec)
	if err != nil {
		return nil, false, err
	}
	if hook := d.r.row.Hooks.BeforeDelete; hook != nil {
		if err := hook(ctx, obj, d.options); errors.Is(err, resource.ErrBeingDeleted) {
			return rec, false, nil
		} else if err != nil {
			return nil, false, err
		}
	}
	ending := obj.GetDeletionTimestamp() != nil
	graceful, pending, err := d.begin(ctx, obj)
	if err != nil {
		return nil, false, err
	}
	if pending {
		return rec, false, nil
	}
	if ending && graceful && d.isFinalDelete(obj) {
		d.ending = obj.GetUID()
		last, gone, err := d.remove(ctx, rec, true)
		if !errors.Is(err, errTwoWrites) {
			return last, gone, err
		}
		d.ending = ""
	}
	marked := rec
	if _, changed := d.finalizers(obj); graceful || changed || len(obj.GetFinalizers()) > 0 || d.hookKeeps(ctx, obj) {
		var now bool
		if marked, now, err = d.mark(ctx); err != nil || !now {
			return marked, false, err
		}
	}
	return d.remove(ctx, marked, graceful)
}

// isFinalDelete reports whether this delete completes a graceful deletion: the grace period in the
// request is 0, and neither finalizers nor hooks keep obj, which is terminating. Such an object is
// removed in one write. Watchers see its last state as if the shorter grace period had been stored
// first (see FinalState).
func (d *deletion) isFinalDelete(obj resource.Object) bool {
	_, changed := d.finalizers(obj)
	return !d.dry && *d.options.GracePeriodSeconds == 0 && !changed && len(obj.GetFinalizers()) == 0 &&
		d.r.row.Hooks.Ending == nil
}

// read returns the object of rec for marking it. Hooks may change all of it, so with hooks it is a
// deep copy. Without hooks only the metadata may be changed, and it is a shallow copy.
func (d *deletion) read(rec *store.Record) (resource.Object, error) {
	if d.r.row.Hooks.BeforeDelete != nil || d.r.row.Hooks.Ending != nil {
		return rec.Object()
	}
	return d.readShallow(rec)
}

// readShallow is like Registry.readShallow, but decodes the object only once for each revision.
func (d *deletion) readShallow(rec *store.Record) (resource.Object, error) {
	if d.r.dynamic {
		return d.r.readShallow(rec)
	}
	if d.seen.obj == nil || d.seen.revision != rec.Revision {
		obj, err := rec.Read()
		if err != nil {
			return nil, err
		}
		d.seen = cachedObject{rec.Revision, obj}
	}
	return d.r.shallow(rec, d.seen.obj)
}

// mark stores the object as being deleted. now reports whether nothing keeps the object, so that it
// can be removed.
func (d *deletion) mark(ctx context.Context) (rec *store.Record, now bool, err error) {
	var seen *store.Record
	var grace int64
	var kept bool
	up := func(ctx context.Context, cur *store.Record) (resource.Object, error) {
		seen = cur
		obj, err := d.before(ctx, cur)
		if err != nil {
			return nil, err
		}
		if err := d.w.admitDelete(ctx, obj); err != nil {
			return nil, err
		}
		graceful, pending, err := d.begin(ctx, obj)
		if err != nil {
			return nil, err
		}
		if d.first != nil && (pending || !graceful) {
			return nil, errTwoWrites
		}
		if pending {
			return nil, resource.ErrBeingDeleted
		}
		if list, changed := d.finalizers(obj); changed {
			obj.SetFinalizers(list)
		}
		kept = len(obj.GetFinalizers()) != 0
		if !graceful {
			if !kept && !d.hookKeeps(ctx, obj.DeepCopyObject().(resource.Object)) {
				return nil, errDeleteNow
			}
			kept = true
			markDeleting(ctx, obj)
			d.hookKeeps(ctx, obj)
			return obj, nil
		}
		grace = *d.options.GracePeriodSeconds
		return obj, nil
	}
	rec, err = d.update(ctx, up)
	switch {
	case err == nil:
		return rec, !kept && grace <= 0, nil
	case errors.Is(err, errDeleteNow) && d.dry:
		blank, err := d.r.makeRecord("", d.r.row.New(), 0)
		return blank, true, err
	case errors.Is(err, errDeleteNow):
		return seen, true, nil
	case errors.Is(err, resource.ErrBeingDeleted):
		return seen, false, nil
	}
	return nil, false, err
}

// hookKeeps reports whether the kind's hook Ending keeps obj. The hook may change obj.
func (d *deletion) hookKeeps(ctx context.Context, obj resource.Object) bool {
	return d.r.row.Hooks.Ending != nil && d.r.row.Hooks.Ending(ctx, obj)
}

func (d *deletion) update(ctx context.Context, fn store.UpdateFunc) (*store.Record, error) {
	if !d.dry {
		return d.r.store.Update(ctx, d.key, fn)
	}
	cur, err := d.r.store.Get(ctx, d.key, "")
	if err != nil {
		return nil, err
	}
	obj, err := fn(ctx, cur)
	if err != nil {
		return nil, err
	}
	return d.r.makeRecord(d.key, obj, cur.Revision)
}

// remove removes the object from the store. marked is its last known state. If graceful is set and
// another client has already removed the object, remove returns no error.
func (d *deletion) remove(ctx context.Context, marked *store.Record, graceful bool) (*store.Record, bool, error) {
	check := func(cur *store.Record) error {
		obj, err := d.readShallow(cur)
		if err != nil {
			return err
		}
		if d.ending != "" && (obj.GetUID() != d.ending || len(obj.GetFinalizers()) != 0) {
			return errTwoWrites
		}
		p := d.options.Preconditions
		if p != nil && p.ResourceVersion != nil && cur.Revision == marked.Revision {
			p = &metav1.Preconditions{UID: p.UID} // the resourceVersion was compared before marking changed it
		}
		if err := d.r.CheckPreconditions(obj, p, d.dry); err != nil {
			return err
		}
		return d.w.admitDelete(ctx, obj)
	}
	if d.dry && marked.Revision == 0 {
		return marked, true, nil
	}
	if d.dry {
		return marked, true, check(marked)
	}
	rec, err := d.r.store.Delete(ctx, d.key, check)
	if apierrors.IsNotFound(err) && graceful {
		rec, err = marked, nil
	}
	if err != nil {
		return nil, false, err
	}
	if hook := d.r.row.Hooks.AfterDelete; hook != nil {
		if obj, decodeErr := rec.Object(); decodeErr == nil {
			hook(ctx, obj)
		}
	}
	return rec, true, nil
}

// begin sets the deletion timestamp and the grace period of obj as the kind and the options
// require. graceful reports whether the object is deleted gracefully. pending reports whether an
// earlier delete is in progress and this one changes nothing.
func (d *deletion) begin(ctx context.Context, obj resource.Object) (graceful, pending bool, err error) {
	if err := d.preconditions(obj); err != nil {
		return false, false, err
	}
	if g := d.options.GracePeriodSeconds; g != nil && *g < 0 {
		d.options.GracePeriodSeconds = new(int64(1))
	}
	if g := obj.GetDeletionGracePeriodSeconds(); g != nil && *g < 0 {
		obj.SetDeletionGracePeriodSeconds(new(int64(1)))
	}
	decide := d.r.row.GracefulDelete
	switch {
	case decide == nil:
		return false, false, nil
	case obj.GetDeletionTimestamp() != nil:
		graceful, pending = d.shorten(ctx, obj)
		return graceful, pending, nil
	case !decide(ctx, obj, d.options):
		return false, false, nil
	case d.options.GracePeriodSeconds == nil:
		return false, false, apierrors.NewInternalError(errNoGracePeriod)
	}
	grace := *d.options.GracePeriodSeconds
	end := metav1.NewTime(resource.Time(ctx).Add(time.Duration(grace) * time.Second))
	obj.SetDeletionTimestamp(&end)
	obj.SetDeletionGracePeriodSeconds(&grace)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false, nil
}

// shorten moves the deletion timestamp of an object that is being deleted to an earlier time, if
// the requested grace period is shorter than the present one. A longer grace period is ignored.
func (d *deletion) shorten(ctx context.Context, obj resource.Object) (graceful, pending bool) {
	have := obj.GetDeletionGracePeriodSeconds()
	if have == nil || *have == 0 {
		return false, false
	}
	if d.options.GracePeriodSeconds == nil {
		d.options.GracePeriodSeconds = new(*have)
		return false, true
	}
	want := *d.options.GracePeriodSeconds
	if want >= *have {
		return false, true
	}
	now := resource.Time(ctx)
	end := metav1.NewTime(obj.GetDeletionTimestamp().Add(time.Duration(want-*have) * time.Second))
	if end.Before(&now) {
		end = now
		if want != 0 {
			want = 1 // the grace period has passed, but no client has confirmed the deletion yet
		}
	}
	obj.SetDeletionTimestamp(&end)
	obj.SetDeletionGracePeriodSeconds(&want)
	return true, false
}

func (d *deletion) preconditions(obj resource.Object) error {
	p := d.options.Preconditions
	if p == nil {
		return nil
	}
	kind := d.r.kindOf(obj)
	gr := schema.GroupResource{Group: kind.Group, Resource: kind.Kind} // Kubernetes puts the kind in this field
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does "+
			"not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition "+
			"(%s) does not match the ResourceVersion in record (%s). The object might have been modified",
			*p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// finalizers returns the finalizers that obj must have: its own, with the garbage collector's
// finalizers as the propagation policy requires.
func (d *deletion) finalizers(obj resource.Object) (list []string, changed bool) {
	have := obj.GetFinalizers()
	if d.r.cfg.NoGarbageCollection {
		return have, false
	}
	for _, f := range have {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			list = append(list, f)
		}
	}
	switch d.propagation(have) {
	case metav1.DeletePropagationOrphan:
		list = append(list, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		list = append(list, metav1.FinalizerDeleteDependents)
	}
	a, b := slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(list))
	return list, !slices.Equal(slices.Compact(a), slices.Compact(b))
}

// unsupportedGarbageCollection is a value of the field DefaultGarbageCollection in a row of the
// kind table. It means that the resource's objects (events) own no other objects. Deletes then
// remove the garbage collector's finalizers, whatever the request says.
const unsupportedGarbageCollection metav1.DeletionPropagation = "Unsupported"

// propagation returns what happens to the object's dependents. The request takes precedence over
// the object's finalizers, and these take precedence over the resource's default.
func (d *deletion) propagation(have []string) metav1.DeletionPropagation {
	o := d.options
	if d.r.row.DefaultGarbageCollection == unsupportedGarbageCollection {
		return metav1.DeletePropagationBackground
	}
	if o.OrphanDependents != nil { // deprecated, but clients may still set it
		if *o.OrphanDependents { // deprecated, but clients may still set it
			return metav1.DeletePropagationOrphan
		}
		return metav1.DeletePropagationBackground
	}
	if o.PropagationPolicy != nil {
		return *o.PropagationPolicy
	}
	for _, f := range have {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			return metav1.DeletePropagationForeground
		}
	}
	return d.r.row.DefaultGarbageCollection
}

// markDeleting marks an object that finalizers or a hook keep: it sets the deletion timestamp, and
// the grace period to 0.
func markDeleting(ctx context.Context, obj resource.Object) {
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	now := resource.Time(ctx)
	if t := obj.GetDeletionTimestamp(); t == nil || t.After(now.Time) {
		obj.SetDeletionTimestamp(&now)
	}
	obj.SetDeletionGracePeriodSeconds(new(int64(0)))
}
