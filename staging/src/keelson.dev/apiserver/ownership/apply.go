// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/typedjson"
)

// lastApplied is an annotation that kubectl apply sets. Apimachinery updates it on a server-side
// apply, which Apply does not.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Configuration is the applied configuration of a server-side apply.
type Configuration struct {
	// Fields is the decoded document; Data is the same document as JSON.
	Fields  map[string]any
	Data    []byte
	Manager string // the field manager
	Force   bool   // take fields from other managers
}

// Apply merges a configuration into a copy of live and sets its managedFields. The result out
// shares no memory with live. The result changed reports whether out differs from live apart from
// managedFields; the caller then has to apply defaults. ok is false in cases that Apply does not
// handle, such as conflicts, invalid fields, and fields that the manager owned and no longer
// applies.
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
	if !typedjson.Read(c.Data, typed) {
		return nil, false, false
	}
	out, ok = live.DeepCopyObject().(Object)
	if !ok {
		return nil, false, false
	}
	var m merging
	m.structure(root, c.Fields, operand{reflect.ValueOf(out).Elem(), present}, reflect.ValueOf(typed).Elem())
	if m.odd {
		return nil, false, false
	}
	all := m.changed.end(0)
	changed = m.reordered || len(all) > 0
	managers, ok = k.applied(managers, c, without(all, k.reset), m.unsure.end(0), m.owned.end(0))
	if !ok {
		return nil, false, false
	}
	if changed {
		managers[len(managers)-1].Time = &now
	}
	entries, ok := k.encode(managers)
	if !ok {
		return nil, false, false
	}
	out.SetManagedFields(entries)
	return out, changed, true
}

// usual reports whether Apply handles the configuration: it is of the Keeper's kind, its metadata
// has no managedFields, and neither it nor live has kubectl's annotation.
func (k *Keeper) usual(live Object, c Configuration) bool {
	if c.Manager == "" || c.Fields["apiVersion"] != k.apiVersion || c.Fields["kind"] != k.cfg.Kind.Kind {
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

// applied returns managers after an apply. The applying manager is the last one, and owns the paths
// in owned. The other managers lose the paths in changed. applied returns false if the applying
// manager no longer applies a path that it owned. It also returns false if another manager owns a
// path in changed; if the apply is forced, only the paths in unsure count for this.
func (k *Keeper) applied(managers []manager, c Configuration, changed, unsure, owned set) ([]manager, bool) {
	mine := manager{ManagedFieldsEntry: metav1.ManagedFieldsEntry{
		Manager: c.Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: k.apiVersion,
		FieldsType: fieldsType, Subresource: k.cfg.Subresource,
	}}
	others := managers[:0]
	for _, m := range managers {
		if m.Operation == mine.Operation && m.Manager == mine.Manager && m.Subresource == mine.Subresource {
			mine = m
			continue
		}
		kept := changed
		if c.Force {
			kept = unsure
		}
		if len(intersection(m.fields, kept)) > 0 {
			return nil, false
		}
		m.remove(changed)
		others = append(others, m)
	}
	owned = without(owned, k.reset)
	if len(difference(mine.fields, owned)) > 0 {
		return nil, false
	}
	if owned = difference(owned, k.strip); !equal(owned, mine.fields) {
		mine.fields, mine.touched = owned, true
	}
	return append(others, mine), true
}
