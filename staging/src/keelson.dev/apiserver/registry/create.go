// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
)

const (
	maxGeneratedPrefix = 58 // maximum length of the part of generateName that is used
	suffixLength       = 5
	maxNameAttempts    = 8 // maximum number of generated names that are tried

	repeatedOwners = ".metadata.ownerReferences contains duplicate entries; API server dedups owner " +
		"references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; " +
		"duplicate UID(s) observed: %v"
	repeatedOwnersAfter = ".metadata.ownerReferences contains duplicate entries after mutating admission " +
		"happens; API server dedups owner references in 1.20+, and may reject such requests as early as " +
		"1.24; please fix your requests; duplicate UID(s) observed: %v"
)

// errVersionSet has no Status, so clients get status code 500, as in Kubernetes.
var errVersionSet = errors.New("resourceVersion should not be set on objects to be created")

// Create stores obj, a new object, which it may modify. obj has the Go type of the storage version.
// For a dry run, nothing is stored and the record has no revision.
func (r *Registry) Create(ctx context.Context, namespace string, obj resource.Object,
	options metav1.CreateOptions) (*store.Record, error) {
	return r.CreateIn(ctx, r.row.Version, namespace, obj, options)
}

// CreateIn is like Create, for a request in the given served version.
func (r *Registry) CreateIn(ctx context.Context, version, namespace string, obj resource.Object,
	options metav1.CreateOptions) (*store.Record, error) {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}
	clearKind(obj)
	clearServerFields(obj)
	if err := r.matchNamespace(namespace, obj); err != nil {
		return nil, err
	}
	w := &write{
		registry: r, namespace: r.admissionNamespace(namespace, obj), name: obj.GetName(), version: version,
		operation: admission.Create, options: &options, dryRun: isDryRun(options.DryRun),
	}
	ctx = r.context(ctx, namespace)
	dedupOwners(ctx, obj, repeatedOwners)
	live := r.row.New()
	obj = r.managerOf(version, "").update(ctx, live, obj, ManagerName(ctx, options.FieldManager))
	if err := w.mutate(ctx, obj, nil); err != nil {
		return nil, err
	}
	dedupOwners(ctx, obj, repeatedOwnersAfter)
	rec, err := r.createNamed(ctx, w, obj)
	if tooLarge(err) && obj.GetManagedFields() != nil {
		obj.SetManagedFields(nil)
		rec, err = r.createNamed(ctx, w, obj)
	}
	return rec, err
}

// clearServerFields drops the metadata that only the server sets on a new object.
func clearServerFields(obj resource.Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// context returns ctx with the namespace and the time of the request, which the kind's rules read.
func (r *Registry) context(ctx context.Context, namespace string) context.Context {
	return resource.WithTime(request.WithNamespace(ctx, namespace), r.cfg.Clock.Now())
}

// admissionNamespace returns the namespace in the attributes for admission plugins. For a Namespace
// object, it is the object's own name.
func (r *Registry) admissionNamespace(namespace string, obj resource.Object) string {
	if namespace == "" && r.row.NamespaceItself {
		return obj.GetName()
	}
	return namespace
}

// matchNamespace sets obj's namespace to that of the request, which is empty for cluster-wide
// resources. It returns an error if both are set and differ.
func (r *Registry) matchNamespace(namespace string, obj resource.Object) error {
	if !r.row.Namespaced {
		namespace = ""
	}
	switch have := obj.GetNamespace(); {
	case have == namespace:
		return nil
	case have == "", namespace == "":
		obj.SetNamespace(namespace)
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// createNamed stores obj, after it has generated a name if obj has none. If the generated name is
// taken, it tries other names.
func (r *Registry) createNamed(ctx context.Context, w *write, obj resource.Object) (*store.Record, error) {
	if obj.GetGenerateName() == "" || obj.GetName() != "" {
		return r.create(ctx, w, obj)
	}
	for attempt := 1; ; attempt++ {
		try := obj.DeepCopyObject().(resource.Object)
		base := obj.GetGenerateName()
		if len(base) > maxGeneratedPrefix {
			base = base[:maxGeneratedPrefix]
		}
		try.SetName(base + r.random(suffixLength))
		rec, err := r.create(ctx, w, try)
		if err == nil || !apierrors.IsAlreadyExists(err) || attempt == maxNameAttempts {
			return rec, err
		}
	}
}

func (r *Registry) random(n int) string {
	if r.cfg.Random != nil {
		return r.cfg.Random(n)
	}
	return rand.String(n)
}

// create applies the kind's rules to an object that has a name, and stores it.
func (r *Registry) create(ctx context.Context, w *write, obj resource.Object) (rec *store.Record, err error) {
	now := resource.Time(ctx)
	obj.SetCreationTimestamp(now.Rfc3339Copy())
	obj.SetUID(r.newUID())
	finish, err := r.beforeCreate(ctx, w, obj)
	if err != nil {
		return nil, err
	}
	defer func() { finish(err == nil) }()
	if err := r.prepareCreate(ctx, obj); err != nil {
		return nil, err
	}
	if err := w.validate(ctx, obj, nil); err != nil {
		return nil, err
	}
	if err := w.prune(obj); err != nil {
		return nil, err
	}
	if rec, err = r.insert(ctx, w, obj); err != nil {
		return nil, r.explainCreateError(ctx, err, obj)
	}
	if !w.dryRun && r.row.Hooks.AfterCreate != nil {
		r.row.Hooks.AfterCreate(ctx, obj)
	}
	return rec, nil
}

func (r *Registry) newUID() types.UID {
	if r.cfg.UID != nil {
		return r.cfg.UID()
	}
	return uuid.NewUUID()
}

func (r *Registry) beforeCreate(ctx context.Context, w *write, obj resource.Object) (func(bool), error) {
	if r.row.Hooks.BeforeCreate == nil {
		return func(bool) {}, nil
	}
	finish, err := r.row.Hooks.BeforeCreate(ctx, obj, w.dryRun)
	if err != nil {
		return nil, err
	}
	if finish == nil {
		return func(bool) {}, nil
	}
	return finish, nil
}

// prepareCreate applies the kind's rules for new objects: it prepares and validates obj, sends
// warnings, and canonicalizes obj.
func (r *Registry) prepareCreate(ctx context.Context, obj resource.Object) error {
	namespace := request.NamespaceValue(ctx)
	if err := r.matchNamespace(namespace, obj); err != nil {
		return err
	}
	if r.row.PrepareCreate != nil {
		r.row.PrepareCreate(ctx, obj)
	}
	if errs := r.validateNew(ctx, obj); len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	r.warn(ctx, r.row.Warnings, obj, nil)
	if r.row.Canonicalize != nil {
		r.row.Canonicalize(obj)
	}
	return nil
}

// validateNew returns all errors in a new object.
func (r *Registry) validateNew(ctx context.Context, obj resource.Object) field.ErrorList {
	var errs field.ErrorList
	if r.row.Validate != nil {
		errs = r.row.Validate(ctx, obj)
	}
	if other := r.validateKind(obj); len(other) > 0 {
		return append(other, errs...) // Kubernetes does not validate the metadata of another kind
	}
	if r.row.MetaLast && len(errs) > 0 {
		return errs
	}
	return append(r.validateMeta(obj), errs...)
}

// validateMeta validates all metadata of a new object.
func (r *Registry) validateMeta(obj resource.Object) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(naming.Suspect{Object: obj}, r.row.Namespaced, r.nameFn(), meta)
	return append(errs, r.validateFinalizers(obj)...)
}

// validateFinalizers returns an error for each finalizer that is neither a standard one nor a
// qualified name ("example.com/name").
func (r *Registry) validateFinalizers(obj resource.Object) field.ErrorList {
	if r.dynamic || r.row.AnyFinalizer {
		return nil
	}
	var errs field.ErrorList
	for i, f := range obj.GetFinalizers() {
		if !strings.Contains(f, "/") && !standardFinalizer(f) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), f,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

func standardFinalizer(name string) bool {
	return name == "kubernetes" || name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
}

func (r *Registry) nameFn() validation.ValidateNameFunc {
	if f := r.row.ValidateName; f != nil {
		return validation.ValidateNameFunc(f)
	}
	return naming.NameIsDNSSubdomain
}

func (r *Registry) warn(ctx context.Context,
	warnings func(context.Context, resource.Object, resource.Object) []string, obj, old resource.Object) {
	if warnings == nil {
		return
	}
	for _, w := range warnings(ctx, obj, old) {
		warning.AddWarning(ctx, "", w)
	}
}

func (r *Registry) invalid(obj resource.Object, errs field.ErrorList) error {
	return apierrors.NewInvalid(r.kindOf(obj), obj.GetName(), distinct(errs))
}

// distinct returns errs without duplicates. The same error may come from the rules for all kinds
// and from those of one kind, or from the rules for creates and those for updates.
func distinct(errs field.ErrorList) field.ErrorList {
	seen := make(map[string]bool, len(errs))
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		text := err.Error() // it contains the type, the field and the value
		if seen[text] {
			return true
		}
		seen[text] = true
		return false
	})
}

// kindOf returns the kind that error messages about obj contain.
func (r *Registry) kindOf(obj resource.Object) schema.GroupKind {
	switch {
	case r.dynamic:
		return obj.GetObjectKind().GroupVersionKind().GroupKind()
	case !r.row.StoredAs.Empty():
		return r.row.StoredAs.GroupKind() // for example, events of the core group are stored as events.k8s.io
	}
	return r.row.GroupVersionKind().GroupKind()
}

// validateKind validates the kind and apiVersion of an object without a Go type. Other objects need
// not be validated: their Go type determines both.
func (r *Registry) validateKind(obj resource.Object) field.ErrorList {
	if !r.dynamic {
		return nil
	}
	var errs field.ErrorList
	want := r.row.GroupVersionKind()
	have := obj.GetObjectKind().GroupVersionKind()
	if have.Kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), have.Kind, "must be "+want.Kind))
	}
	if have.GroupVersion() != want.GroupVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), have.GroupVersion().String(),
			"must be "+want.GroupVersion().String()))
	}
	return errs
}

// insert stores obj. For a dry run it only checks that the name is free.
func (r *Registry) insert(ctx context.Context, w *write, obj resource.Object) (*store.Record, error) {
	key := r.key(obj.GetNamespace(), obj.GetName())
	if w.dryRun {
		if _, err := r.store.Get(ctx, key, ""); err == nil {
			return nil, apierrors.NewAlreadyExists(r.row.GroupResource(), obj.GetName())
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
		// The object in the response has the resourceVersion that the client sent.
		said, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
		return r.makeRecord(key, obj, said)
	}
	if said, err := parseRevision(obj.GetResourceVersion()); err == nil && said != 0 {
		return nil, errVersionSet
	}
	obj.SetResourceVersion("") // the client may have sent an invalid one
	obj.SetSelfLink("")
	var ttl int64
	if r.row.TTL != nil {
		ttl = r.row.TTL(obj)
	}
	check := r.cfg.NamespaceCheck
	if check == nil || w.skip || obj.GetNamespace() == "" {
		return r.store.Create(ctx, key, obj, ttl)
	}
	return r.insertInNamespace(ctx, key, obj, ttl, func(latest bool) ([]kv.Unchanged, error) {
		return check(ctx, w.attributes(ctx, obj, nil), latest)
	})
}

// insertInNamespace stores obj unless the function check rejects it. This function looks at the
// namespace immediately before the write, because admission may have looked at it long ago. An
// object that is stored after the namespace's contents were deleted would never be deleted.
func (r *Registry) insertInNamespace(
	ctx context.Context, key string, obj resource.Object, ttl int64, check func(latest bool) ([]kv.Unchanged, error),
) (*store.Record, error) {
	for latest := false; ; latest = true {
		conditions, err := check(latest)
		if err != nil {
			return nil, err
		}
		rec, err := r.store.Create(ctx, key, obj, ttl, conditions...)
		if !errors.Is(err, store.ErrCondition) {
			return rec, err
		}
	}
}

// makeRecord returns the record that storing obj at revision rev would return.
func (r *Registry) makeRecord(key string, obj resource.Object, rev int64) (*store.Record, error) {
	data, err := r.codec.Encode(obj)
	if err != nil {
		return nil, err
	}
	return store.NewRecord(key, rev, data, r.attrs(obj), r.codec, nil), nil
}

// explainCreateError adds details to the error that says that the name of obj is taken.
func (r *Registry) explainCreateError(ctx context.Context, err error, obj resource.Object) error {
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var taken *apierrors.StatusError
	if obj.GetGenerateName() != "" {
		taken = apierrors.NewGenerateNameConflict(r.row.GroupResource(), obj.GetName(), 1)
	} else {
		taken = apierrors.NewAlreadyExists(r.row.GroupResource(), obj.GetName())
	}
	rec, err := r.store.Get(ctx, r.key(obj.GetNamespace(), obj.GetName()), "")
	if err != nil {
		return taken
	}
	if cur, err := rec.Object(); err == nil && cur.GetDeletionTimestamp() != nil {
		taken.ErrStatus.Message = "object is being deleted: " + taken.ErrStatus.Message
	}
	return taken
}
