// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"cmp"
	"slices"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step is what to do now with the StorageVersionMigrations of one resource.
type step struct {
	// finish are migrations that have ended but are still marked as running.
	finish []*migration
	// start is the migration to start, and run is the running migration to continue. At most one of
	// them is set.
	start, run *migration
}

// next decides what to do now with the StorageVersionMigrations of one resource.
func next(all []*migration) step {
	var s step
	for _, m := range all {
		running := is(m, storagemigrationv1.MigrationRunning)
		ended := is(m, storagemigrationv1.MigrationSucceeded) || is(m, storagemigrationv1.MigrationFailed)
		switch {
		case running && ended:
			s.finish = append(s.finish, m)
		case running && (s.run == nil || order(m, s.run) < 0):
			s.run = m
		case !running && !ended && (s.start == nil || order(m, s.start) < 0):
			s.start = m
		}
	}
	if s.run != nil {
		s.start = nil
	}
	slices.SortFunc(s.finish, order)
	return s
}

// order compares two StorageVersionMigrations in the order in which they run: the older one first.
func order(a, b *migration) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func is(m *migration, what storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(what))
}

func conditionOf(m *migration, what storagemigrationv1.MigrationConditionType) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, string(what))
}
