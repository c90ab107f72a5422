// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// lastApplied is kept up to date for kubectl alone.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Configuration is what somebody applies.
type Configuration struct {
	// Fields is the document; Data is the same as JSON.
	Fields map[string]any
	Data   []byte
	Who    string
	Force  bool
}

// Apply merges a configuration into live, which stays as it is, and keeps
// managedFields. The result shares nothing with live; it is not defaulted yet
// where changed says that it is not live again. Apply reports false when it does
// not know how: what would end in an error or take fields away is among that.
func (k *Keeper) Apply(live Object, c Configuration, now metav1.Time) (out Object, changed, ok bool) {
	root := k.kind()
	if root == nil || !k.usual(live, c) {
		return nil, false, false
	}
	managers, ok := k.read(root, live.GetManagedFields())
	if !ok || len(managers) == 0 && live.GetUID() != "" {
		return nil, false, false
	}
	typed := k.cfg.New()
	if odd, err := kjson.UnmarshalStrict(c.Data, typed); err != nil || len(odd) > 0 {
		return nil, false, false
	}
	out, ok = live.DeepCopyObject().(Object)
	if !ok {
		return nil, false, false
	}
	m := merging{comparison: comparison{path: make([]string, 0, 16)}}
	m.structure(root, c.Fields, operand{reflect.ValueOf(out).Elem(), present}, reflect.ValueOf(typed).Elem())
	if m.odd {
		return nil, false, false
	}
	managers, ok = k.applied(managers, c, &m, now)
	if !ok {
		return nil, false, false
	}
	entries, ok := encode(managers)
	if !ok {
		return nil, false, false
	}
	out.SetManagedFields(entries)
	return out, m.differs(), true
}

// usual reports whether the configuration is of a sort that is handled here.
func (k *Keeper) usual(live Object, c Configuration) bool {
	if c.Who == "" || c.Fields["apiVersion"] != k.apiVersion || c.Fields["kind"] != k.cfg.Kind.Kind {
		return false
	}
	if _, kept := live.GetAnnotations()[lastApplied]; kept {
		return false
	}
	metadata, ok := c.Fields["metadata"].(map[string]any)
	if !ok {
		return false
	}
	_, fields := metadata["managedFields"]
	annotations, _ := metadata["annotations"].(map[string]any)
	_, kept := annotations[lastApplied]
	return !fields && !kept
}

// applied replaces what the manager owned by what is applied. It reports false
// where others object, or where the manager gives something up.
func (k *Keeper) applied(managers []manager, c Configuration, m *merging, now metav1.Time) ([]manager, bool) {
	changed, owned := without(m.changed, k.reset), without(m.owned, k.reset)
	self := slices.IndexFunc(managers, func(m manager) bool {
		return m.Operation == metav1.ManagedFieldsOperationApply && m.Manager == c.Who && m.Subresource == k.cfg.Subresource
	})
	for i := range managers {
		if i == self {
			continue
		}
		if !c.Force && len(intersection(managers[i].fields, changed)) > 0 {
			return nil, false
		}
		managers[i].loses(changed)
	}
	if self < 0 {
		self = len(managers)
		managers = append(managers, manager{ManagedFieldsEntry: metav1.ManagedFieldsEntry{
			Manager: c.Who, Operation: metav1.ManagedFieldsOperationApply, APIVersion: k.apiVersion,
			FieldsType: fieldsType, Subresource: k.cfg.Subresource,
		}})
	}
	mine := &managers[self]
	if len(difference(mine.fields, owned)) > 0 {
		return nil, false
	}
	if owned = difference(owned, k.strip); !equal(owned, mine.fields) {
		mine.fields, mine.touched = owned, true
	}
	if m.differs() {
		mine.Time = &now
	}
	return managers, true
}
