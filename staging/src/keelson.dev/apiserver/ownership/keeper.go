// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

const (
	fieldsType  = "FieldsV1"
	maxUpdaters = 10 // entries of updates that are kept; beyond them the oldest are merged
	nobody      = "unknown"
)

// Object is what managedFields are kept of.
type Object interface {
	runtime.Object
	metav1.Object
}

// Config describes the endpoint whose writes a Keeper follows.
type Config struct {
	Types     *Types
	Converter managedfields.TypeConverter
	Kind      schema.GroupVersionKind
	// Subresource is the view that is written; empty: the object.
	Subresource string
	// Reset are the fields that the endpoint resets, as paths with dots: nobody
	// who writes there owns them.
	Reset []string
	// New makes an empty object.
	New func() Object
}

// Keeper keeps the managedFields of one endpoint.
type Keeper struct {
	cfg        Config
	apiVersion string
	reset      set
	strip      set

	once sync.Once
	root *node // nil: not a kind for this package
	err  error // why

	texts   sync.Pool // *[]byte, in which FieldsV1 are written
	parsed  parsed
	written written

	comparisons sync.Pool // *comparison
}

// New returns the Keeper of an endpoint. The kind is compiled at the first write.
func New(cfg Config) *Keeper {
	return &Keeper{
		cfg: cfg, apiVersion: cfg.Kind.GroupVersion().String(),
		reset: pathSet(slices.Sorted(slices.Values(cfg.Reset))), strip: unowned(),
	}
}

// unowned are the fields that have no owner.
func unowned() set {
	return pathSet([]string{
		"apiVersion", "kind", "metadata", "metadata.clusterName", "metadata.creationTimestamp", "metadata.generation", "metadata.managedFields",
		"metadata.name", "metadata.namespace", "metadata.resourceVersion", "metadata.selfLink", "metadata.uid",
	})
}

// kind returns the compiled kind, or nil.
func (k *Keeper) kind() *node {
	k.once.Do(func() {
		obj := k.cfg.New()
		obj.GetObjectKind().SetGroupVersionKind(k.cfg.Kind)
		v, err := k.cfg.Converter.ObjectToTyped(obj)
		if err != nil {
			k.err = err // apimachinery words it when there is a write
			return
		}
		k.root, k.err = k.cfg.Types.compile(v, reflect.TypeOf(obj).Elem())
	})
	return k.root
}

// manager is an entry of managedFields and its paths.
type manager struct {
	metav1.ManagedFieldsEntry
	fields  set
	touched bool // fields are not what the entry says
}

// isUpdate reports whether the manager is one of updates through this endpoint.
func (k *Keeper) isUpdate(m *manager, name string) bool {
	return m.Operation == metav1.ManagedFieldsOperationUpdate && m.Manager == name && m.Subresource == k.cfg.Subresource
}

// Update sets obj's managedFields to what they are after the manager who replaced
// live by obj, now. It reports false, and has changed nothing, when it does not
// know how.
func (k *Keeper) Update(live, obj Object, who string, now metav1.Time) bool {
	root := k.kind()
	if root == nil {
		return false
	}
	managers, ok := k.before(root, live, obj)
	if !ok {
		return false
	}
	if len(managers) == 0 && live.GetUID() != "" {
		obj.SetManagedFields(nil) // nobody owns what was made before owners were kept
		return true
	}
	said := obj.GetManagedFields()
	obj.SetManagedFields(nil)
	// Of what differs nothing is left but the texts of entries.
	c, ok := k.comparisons.Get().(*comparison)
	if !ok {
		c = new(comparison)
	}
	defer func() {
		c.reset()
		k.comparisons.Put(c)
	}()
	changed, removed, ok := c.of(root, live, obj)
	if !ok {
		obj.SetManagedFields(said)
		return false
	}
	changed, removed = without(changed, k.reset), without(removed, k.reset)
	for i := range managers {
		managers[i].loses(changed)
		managers[i].loses(removed)
	}
	managers = k.gains(managers, who, difference(changed, k.strip), now)
	entries, ok := k.encode(managers)
	if !ok {
		obj.SetManagedFields(said)
		return false
	}
	obj.SetManagedFields(entries)
	return true
}

// before reads the managers that an update finds: those that obj names, which may
// say that there shall be none, or else those of live.
func (k *Keeper) before(root *node, live, obj Object) ([]manager, bool) {
	entries := live.GetManagedFields()
	if said := obj.GetManagedFields(); k.cfg.Subresource == "" && said != nil {
		switch {
		case len(said) == 0, len(said) == 1 && reflect.DeepEqual(said[0], metav1.ManagedFieldsEntry{}):
			return nil, true
		}
		entries = said
	}
	return k.read(root, entries)
}

func (k *Keeper) read(root *node, entries []metav1.ManagedFieldsEntry) ([]manager, bool) {
	managers := make([]manager, len(entries), len(entries)+1)
	for i := range entries {
		e := &entries[i]
		if e.APIVersion != k.apiVersion || e.FieldsType != fieldsType || e.FieldsV1 == nil ||
			e.Operation != metav1.ManagedFieldsOperationUpdate && e.Operation != metav1.ManagedFieldsOperationApply {
			return nil, false
		}
		for j := range i {
			if entries[j].Manager == e.Manager && entries[j].Operation == e.Operation && entries[j].Subresource == e.Subresource {
				return nil, false
			}
		}
		raw := e.FieldsV1.GetRawBytes()
		fields, err := k.parsed.parse(unsafe.String(unsafe.SliceData(raw), len(raw)), root)
		if err != nil {
			return nil, false
		}
		managers[i] = manager{ManagedFieldsEntry: *e, fields: fields}
	}
	return managers, true
}

// loses takes paths from a manager.
func (m *manager) loses(paths set) {
	if len(intersection(m.fields, paths)) > 0 {
		m.fields, m.touched = difference(m.fields, paths), true
	}
}

// gains gives paths to the manager who updates.
func (k *Keeper) gains(managers []manager, who string, paths set, now metav1.Time) []manager {
	if len(paths) == 0 {
		return managers
	}
	if who == "" {
		who = nobody
	}
	i := slices.IndexFunc(managers, func(m manager) bool { return k.isUpdate(&m, who) })
	if i < 0 {
		i = len(managers)
		managers = append(managers, manager{ManagedFieldsEntry: metav1.ManagedFieldsEntry{
			Manager: who, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: k.apiVersion,
			FieldsType: fieldsType, Subresource: k.cfg.Subresource,
		}})
	}
	m := &managers[i]
	if both := union(paths, m.fields); !equal(both, m.fields) {
		m.fields, m.touched = both, true
	}
	m.Time = &now
	return managers
}

// encode makes entries of managers, in their order. It reports false when there
// are more than are kept.
func (k *Keeper) encode(managers []manager) ([]metav1.ManagedFieldsEntry, bool) {
	var out []metav1.ManagedFieldsEntry
	text, ok := k.texts.Get().(*[]byte)
	if !ok {
		text = new([]byte)
	}
	defer k.texts.Put(text)
	updaters := 0
	for i := range managers {
		m := &managers[i]
		if len(m.fields) == 0 {
			continue
		}
		if m.Operation == metav1.ManagedFieldsOperationUpdate {
			updaters++
		}
		if m.touched {
			*text = appendFields((*text)[:0], m.fields)
			m.FieldsV1 = k.written.fields(*text)
		}
		out = append(out, m.ManagedFieldsEntry)
	}
	slices.SortFunc(out, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(
			cmp.Compare(a.Operation, b.Operation), cmp.Compare(seconds(a.Time), seconds(b.Time)),
			cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Subresource, b.Subresource),
		)
	})
	return out, updaters <= maxUpdaters
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}
