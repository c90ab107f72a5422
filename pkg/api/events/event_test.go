// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math/rand/v2"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/apiserver/registry"
	"keelson.dev/keelson/pkg/api/core"
)

// TestStoredFields checks that each selectable field of this group has the same value as the field
// of the core group that stands for it. The server selects stored events by the fields of the core
// group.
func TestStoredFields(t *testing.T) {
	row := Rows()[0]
	stored := core.EventRow()
	ours, theirs := registry.Attrs(row), registry.Attrs(stored)
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func() string { return string(rune('a' + rnd.IntN(26))) }
	for range 100 {
		e := &eventsv1.Event{Reason: word(), Type: word(), ReportingController: word()}
		e.Name, e.Namespace = word(), word()
		e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Regarding.UID = word(), word(), word(), types.UID(word())
		e.Regarding.APIVersion, e.Regarding.ResourceVersion, e.Regarding.FieldPath = word(), word(), word()
		e.DeprecatedSource.Component = word()
		want, got := ours(e).Fields, theirs(core.EventOf(e)).Fields
		for _, field := range append(row.SelectableFields, "metadata.name", "metadata.namespace") {
			name := field
			if other, ok := row.StoredFields[field]; ok {
				name = other
			}
			if got[name] != want[field] {
				t.Fatalf("%s is %q, %s of what is stored %q", field, want[field], name, got[name])
			}
		}
	}
}
