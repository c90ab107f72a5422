// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/typedjson"
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
	managers, ok = k.applied(managers, c, without(all, k.reset), m.owned.end(0))
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

// applied replaces what the manager owned, who is the last one afterwards, by what
// is applied. It reports false where others own what is changed, or where the
// manager gives something up.
func (k *Keeper) applied(managers []manager, c Configuration, changed, owned set) ([]manager, bool) {
	mine := manager{ManagedFieldsEntry: metav1.ManagedFieldsEntry{
		Manager: c.Who, Operation: metav1.ManagedFieldsOperationApply, APIVersion: k.apiVersion,
		FieldsType: fieldsType, Subresource: k.cfg.Subresource,
	}}
	others := managers[:0]
	for _, m := range managers {
		if m.Operation == mine.Operation && m.Manager == mine.Manager && m.Subresource == mine.Subresource {
			mine = m
			continue
		}
		if len(intersection(m.fields, changed)) > 0 {
			return nil, false // even by force: it may be no change but another spelling
		}
		m.loses(changed)
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
