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
	maxUpdaters = 10        // with more entries of updates, apimachinery merges the oldest
	unnamed     = "unknown" // manager name for requests that have none
)

// Object is an object with managedFields.
type Object interface {
	runtime.Object
	metav1.Object
}

// Config describes an endpoint that writes objects. Types, Converter, Kind and New are required.
type Config struct {
	Types     *Types
	Converter managedfields.TypeConverter // has the schema of the kind
	Kind      schema.GroupVersionKind
	// Subresource is the subresource that is written; empty for the object itself.
	Subresource string
	// Reset are the fields that the endpoint ignores, as paths with dots. A write to the endpoint
	// does not own them.
	Reset []string
	// New returns an empty object.
	New func() Object
}

// Keeper computes the managedFields for the writes of one endpoint. It is safe for concurrent use.
type Keeper struct {
	cfg        Config
	apiVersion string
	reset      set // paths of Config.Reset, as a set
	strip      set // fields that have no owner, see unowned

	once sync.Once
	root *node // nil if the package does not support the kind
	err  error // why the package does not support the kind

	texts   sync.Pool // pool of *[]byte, buffers for FieldsV1
	parsed  parsed
	written written

	comparisons sync.Pool // pool of *comparison
}

// New returns the Keeper of an endpoint. It compiles the kind on the first write.
func New(cfg Config) *Keeper {
	return &Keeper{
		cfg: cfg, apiVersion: cfg.Kind.GroupVersion().String(),
		reset: pathSet(slices.Sorted(slices.Values(cfg.Reset))), strip: unowned(),
	}
}

// unowned returns the fields that managedFields never contains, as in Kubernetes.
func unowned() set {
	return pathSet([]string{
		"apiVersion", "kind", "metadata", "metadata.clusterName", "metadata.creationTimestamp",
		"metadata.generation", "metadata.managedFields",
		"metadata.name", "metadata.namespace", "metadata.resourceVersion", "metadata.selfLink", "metadata.uid",
	})
}

// kind returns the endpoint's kind, compiled from its schema and Go type. It returns nil if the
// package does not support the kind.
func (k *Keeper) kind() *node {
	k.once.Do(func() {
		obj := k.cfg.New()
		obj.GetObjectKind().SetGroupVersionKind(k.cfg.Kind)
		v, err := k.cfg.Converter.ObjectToTyped(obj)
		if err != nil {
			k.err = err // ignore err here: apimachinery returns it on each write
			return
		}
		k.root, k.err = k.cfg.Types.compile(v, reflect.TypeOf(obj).Elem())
	})
	return k.root
}

// manager is an entry of managedFields (a field manager) with the field paths that it owns.
type manager struct {
	metav1.ManagedFieldsEntry
	fields  set
	touched bool // fields was changed, so FieldsV1 must be encoded again
}

// isUpdate reports whether m is the managedFields entry for updates that the manager called name
// makes through this endpoint.
func (k *Keeper) isUpdate(m *manager, name string) bool {
	return m.Operation == metav1.ManagedFieldsOperationUpdate && m.Manager == name && m.Subresource == k.cfg.Subresource
}

// Update sets the managedFields of obj, with which the manager called name now replaces live. In
// cases that it does not handle, it returns false and changes nothing.
func (k *Keeper) Update(live, obj Object, name string, now metav1.Time) bool {
	root := k.kind()
	if root == nil {
		return false
	}
	managers, ok := k.before(root, live, obj)
	if !ok {
		return false
	}
	if len(managers) == 0 && live.GetUID() != "" {
		obj.SetManagedFields(nil) // Kubernetes does not add managedFields to a stored object without them
		return true
	}
	said := obj.GetManagedFields()
	obj.SetManagedFields(nil)
	// After encode, nothing refers to the comparison's sets, so the comparison is put back into the
	// pool.
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
		managers[i].remove(changed)
		managers[i].remove(removed)
	}
	managers = k.add(managers, name, difference(changed, k.strip), now)
	entries, ok := k.encode(managers)
	if !ok {
		obj.SetManagedFields(said)
		return false
	}
	obj.SetManagedFields(entries)
	return true
}

// before returns the managers before an update. They come from obj if it has managedFields, and
// from live otherwise. A client can remove all managers by sending an empty list or one empty
// entry.
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

// read parses the entries of managedFields. It returns false for entries that the package does not
// handle.
func (k *Keeper) read(root *node, entries []metav1.ManagedFieldsEntry) ([]manager, bool) {
	managers := make([]manager, len(entries), len(entries)+1)
	for i := range entries {
		e := &entries[i]
		if e.APIVersion != k.apiVersion || e.FieldsType != fieldsType || e.FieldsV1 == nil ||
			e.Operation != metav1.ManagedFieldsOperationUpdate && e.Operation != metav1.ManagedFieldsOperationApply {
			return nil, false
		}
		for j := range i {
			if entries[j].Manager == e.Manager && entries[j].Operation == e.Operation &&
				entries[j].Subresource == e.Subresource {
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

// remove removes field paths from a manager (an entry of managedFields).
func (m *manager) remove(paths set) {
	if len(intersection(m.fields, paths)) > 0 {
		m.fields, m.touched = difference(m.fields, paths), true
	}
}

// add adds field paths to the managedFields entry for updates of the manager called name, and sets
// the entry's time.
func (k *Keeper) add(managers []manager, name string, paths set, now metav1.Time) []manager {
	if len(paths) == 0 {
		return managers
	}
	if name == "" {
		name = unnamed
	}
	i := slices.IndexFunc(managers, func(m manager) bool { return k.isUpdate(&m, name) })
	if i < 0 {
		i = len(managers)
		managers = append(managers, manager{ManagedFieldsEntry: metav1.ManagedFieldsEntry{
			Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: k.apiVersion,
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

// encode returns the entries of managers in the order of managedFields. It returns false if more of
// them are entries of updates than maxUpdaters.
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
