// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/ownership"
	"keelson.dev/apiserver/resource"
)

// managedKey identifies an endpoint that has managedFields: a version of the object, or of one of
// its subresources.
type managedKey struct{ version, subresource string }

// manager maintains the managedFields for the writes of one endpoint (a version of the object or of
// a subresource).
type manager struct {
	fields *managedfields.FieldManager
	// reworded returns a field manager that ignores differences in spelling between the live object
	// and config, for one apply of config. See rewording.
	reworded func(config runtime.Object) (*managedfields.FieldManager, error)
	// keeper is a faster implementation of fields for most changes. It is nil for kinds without a
	// Go type and for versions that have to be converted.
	keeper *ownership.Keeper
}

func (r *Registry) makeManagers() error {
	if r.cfg.TypeConverter == nil {
		return nil
	}
	r.managed = make(map[managedKey]*manager)
	for _, v := range r.row.Versions {
		if !r.row.Serves(v.Name) {
			continue
		}
		if err := r.makeManager(v.Name, "", r.row.ResetFields); err != nil {
			return err
		}
		for i := range r.row.Subresources {
			s := &r.row.Subresources[i]
			if err := r.makeManager(v.Name, s.Name, s.ResetFields); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Registry) makeManager(version, subresource string, reset []string) error {
	hub := schema.GroupVersion{Group: r.row.Group, Version: r.row.Version}
	gvk := schema.GroupVersionKind{Group: r.row.Group, Version: version, Kind: r.row.Kind}
	construct := managedfields.NewDefaultFieldManager
	if r.dynamic {
		construct = managedfields.NewDefaultCRDFieldManager
	}
	filters := r.resetFilters(reset)
	with := func(types managedfields.TypeConverter) (*managedfields.FieldManager, error) {
		return construct(types, r.convert, r.convert, r.convert, gvk, hub, subresource, filters)
	}
	fm, err := with(r.cfg.TypeConverter)
	if err != nil {
		return err
	}
	reworded := func(config runtime.Object) (*managedfields.FieldManager, error) {
		return with(rewording{r.cfg.TypeConverter, config, gvk,
			func(obj runtime.Object) (runtime.Object, error) { return r.settled(obj, gvk) }})
	}
	r.managed[managedKey{version, subresource}] = &manager{fields: fm, reworded: reworded,
		keeper: r.keeper(gvk, subresource, reset)}
	return nil
}

// settled returns obj in the form that it has after it was given defaults, stored and read again.
func (r *Registry) settled(obj runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := r.convert.ConvertToVersion(obj, kind.GroupVersion())
	if err != nil {
		return nil, err
	}
	r.convert.Default(obj)
	o, ok := obj.(resource.Object)
	if !ok || r.dynamic || kind.Version != r.row.Version {
		return obj, nil
	}
	data, err := r.codec.Encode(o)
	if err != nil {
		return nil, err
	}
	return r.codec.Decode(data, 0)
}

func (r *Registry) keeper(gvk schema.GroupVersionKind, subresource string, reset []string) *ownership.Keeper {
	v, err := r.convert.version(gvk.Version)
	if err != nil || v != nil && (v.New != nil || v.ToStorage != nil) || r.dynamic || r.cfg.Ownership == nil {
		return nil
	}
	return ownership.New(ownership.Config{
		Types: r.cfg.Ownership, Converter: r.cfg.TypeConverter, Kind: gvk, Subresource: subresource, Reset: reset,
		New: func() ownership.Object { return r.row.New() },
	})
}

// resetFilters returns the filters for the endpoint's reset fields, with which a write does not own
// these fields.
func (r *Registry) resetFilters(paths []string) map[fieldpath.APIVersion]fieldpath.Filter {
	if len(paths) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, p := range paths {
		var path fieldpath.Path
		for name := range strings.SplitSeq(p, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		set.Insert(path)
	}
	sets := make(map[fieldpath.APIVersion]*fieldpath.Set, len(r.row.Versions))
	for _, v := range r.row.Versions {
		gv := schema.GroupVersion{Group: r.row.Group, Version: v.Name}
		sets[fieldpath.APIVersion(gv.String())] = set
	}
	return fieldpath.NewExcludeFilterSetMap(sets)
}

func (r *Registry) managerOf(version, subresource string) *manager {
	if version == "" {
		version = r.row.Version
	}
	return r.managed[managedKey{version, subresource}]
}

// update sets the managedFields of obj after a change from live to obj. The last argument is the
// name of the field manager that made the change. live is not modified.
func (m *manager) update(ctx context.Context, live, obj resource.Object, who string) resource.Object {
	if m == nil {
		obj.SetManagedFields(nil)
		return obj
	}
	if m.keeper != nil && m.keeper.Update(live, obj, who, resource.Time(ctx)) {
		return obj
	}
	if m.keeper == nil && unchanged(obj, live) {
		obj.SetManagedFields(live.GetManagedFields())
		return obj
	}
	live, _ = live.DeepCopyObject().(resource.Object) // the field manager sets the kind of its argument
	out, ok := m.fields.UpdateNoErrors(live, obj, who).(resource.Object)
	if !ok {
		return obj
	}
	return clearKind(out)
}

// unchanged reports whether obj equals live, apart from fields that have no owner. If they are
// equal, an update does not change managedFields. managedFields in obj are compared too if they are
// set.
func unchanged(obj, live resource.Object) bool {
	if live.GetUID() == "" || obj.GetUID() != "" && obj.GetUID() != live.GetUID() {
		return false
	}
	fields, version, uid := obj.GetManagedFields(), obj.GetResourceVersion(), obj.GetUID()
	if fields == nil {
		obj.SetManagedFields(live.GetManagedFields())
	}
	obj.SetResourceVersion(live.GetResourceVersion())
	obj.SetUID(live.GetUID())
	same := equal.Values(obj, live)
	obj.SetManagedFields(fields)
	obj.SetResourceVersion(version)
	obj.SetUID(uid)
	return same
}

// apply merges the configuration patch into live. If force is set, and for a second attempt after a
// conflict, it uses a field manager that ignores differences in spelling. A value that is only
// written differently then does not count as changed, and stays with its owner.
func (m *manager) apply(live resource.Object, patch runtime.Object, who string, force bool) (resource.Object, error) {
	fields := m.fields
	if force {
		var err error
		if fields, err = m.reworded(patch); err != nil {
			return nil, err
		}
	}
	out, err := fields.Apply(live, patch, who, force)
	if apierrors.IsConflict(err) {
		if fields, err = m.reworded(patch); err != nil {
			return nil, err
		}
		out, err = fields.Apply(live, patch, who, force)
	}
	if err != nil {
		return nil, err
	}
	return clearKind(out.(resource.Object)), nil
}

// clearKind clears the TypeMeta of an object with a Go type. Conversions may have set it.
func clearKind(obj resource.Object) resource.Object {
	if _, dynamic := obj.(*unstructured.Unstructured); !dynamic {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj
}

// keepTimes restores the times in old's managedFields if nothing else in obj's managedFields has
// changed, so that an update without effect is not stored.
func keepTimes(obj, old resource.Object) {
	next, prev := obj.GetManagedFields(), old.GetManagedFields()
	if len(next) != len(prev) || len(next) == 0 {
		return
	}
	changed := false
	for i := range next {
		changed = changed || !next[i].Time.Equal(prev[i].Time)
	}
	if !changed || !sameButTimes(next, prev) {
		return
	}
	obj.SetManagedFields(prev)
	if !equal.Values(obj, old) {
		obj.SetManagedFields(next)
	}
}

func sameButTimes(a, b []metav1.ManagedFieldsEntry) bool {
	for i := range a {
		x, y := a[i], b[i]
		if x.FieldsV1 == y.FieldsV1 || x.FieldsV1 != nil && y.FieldsV1 != nil && x.FieldsV1.Equal(*y.FieldsV1) {
			x.FieldsV1, y.FieldsV1 = nil, nil
		}
		x.Time, y.Time = nil, nil
		if x != y {
			return false
		}
	}
	return true
}

type userAgentKey struct{}

// WithUserAgent returns a context for the requests of a client. If such a request has no field
// manager, the first part of userAgent is the manager's name.
func WithUserAgent(ctx context.Context, userAgent string) context.Context {
	return context.WithValue(ctx, userAgentKey{}, &caller{userAgent: userAgent})
}

// caller is the client of a request. It also records the time that webhooks took for the request.
type caller struct {
	userAgent string
	webhooks  atomic.Int64 // nanoseconds
}

// AddWebhookTime adds to the time that admission webhooks took for the request of ctx.
func AddWebhookTime(ctx context.Context, took time.Duration) {
	if c, ok := ctx.Value(userAgentKey{}).(*caller); ok {
		c.webhooks.Add(int64(took))
	}
}

// WebhookTime returns the time that admission webhooks took for the request of ctx so far.
func WebhookTime(ctx context.Context) time.Duration {
	c, ok := ctx.Value(userAgentKey{}).(*caller)
	if !ok {
		return 0
	}
	return time.Duration(c.webhooks.Load())
}

// ManagerName returns the field manager that the client has chosen. If chosen is empty, it returns
// the printable characters of the client's User-Agent up to the first slash.
func ManagerName(ctx context.Context, chosen string) string {
	if chosen != "" {
		return chosen
	}
	agent := ""
	if c, ok := ctx.Value(userAgentKey{}).(*caller); ok {
		agent, _, _ = strings.Cut(c.userAgent, "/")
	}
	var name strings.Builder
	for _, c := range agent {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}
