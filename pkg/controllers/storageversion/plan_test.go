// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"slices"
	"testing"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNext(t *testing.T) {
	const (
		running   = storagemigrationv1.MigrationRunning
		succeeded = storagemigrationv1.MigrationSucceeded
		failed    = storagemigrationv1.MigrationFailed
	)
	of := func(name string, second int64, conditions ...storagemigrationv1.MigrationConditionType) *migration {
		m := &migration{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))}}
		for _, c := range conditions {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: string(c), Status: metav1.ConditionTrue})
		}
		return m
	}
	ran := of("a", 1, succeeded)
	ran.Status.Conditions = append(ran.Status.Conditions,
		metav1.Condition{Type: string(running), Status: metav1.ConditionFalse})
	for name, tc := range map[string]struct {
		all        []*migration
		finish     []string
		start, run string
	}{
		"none":               {},
		"a new one":          {all: []*migration{of("a", 1)}, start: "a"},
		"the oldest first":   {all: []*migration{of("a", 2), of("b", 1)}, start: "b"},
		"by name if at once": {all: []*migration{of("b", 1), of("a", 1)}, start: "a"},
		"one at a time":      {all: []*migration{of("a", 1), of("b", 2, running)}, run: "b"},
		"one that has ended": {all: []*migration{of("a", 1, running, failed), of("b", 2)},
			finish: []string{"a"}, start: "b"},
		"completed one":        {all: []*migration{ran, of("b", 2)}, start: "b"},
		"all are complete":     {all: []*migration{ran}},
		"two are running":      {all: []*migration{of("b", 2, running), of("a", 1, running)}, run: "a"},
		"failed before it ran": {all: []*migration{of("a", 1, failed)}},
		"two that have ended": {all: []*migration{of("b", 2, running, failed),
			of("a", 1, running, succeeded)}, finish: []string{"a", "b"}},
		"ended, and another's turn": {all: []*migration{of("a", 1, running, succeeded), of("b", 2, running),
			of("c", 3)}, finish: []string{"a"}, run: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := next(tc.all)
			var finish []string
			for _, m := range got.finish {
				finish = append(finish, m.Name)
			}
			if !slices.Equal(finish, tc.finish) || nameOf(got.start) != tc.start || nameOf(got.run) != tc.run {
				t.Errorf("finish %v, start %q, run %q; want %v, %q, %q", finish, nameOf(got.start),
					nameOf(got.run), tc.finish, tc.start, tc.run)
			}
		})
	}
}

func nameOf(m *migration) string {
	if m == nil {
		return ""
	}
	return m.Name
}

// TestMarked checks that marked removes old stored versions only if the definition has not changed
// since the migration began.
func TestMarked(t *testing.T) {
	starts, ends, fails := mark{status: true, reason: reasonRunning}, mark{reason: "S", migrated: true}, mark{reason: "F"}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v2", Storage: true}}
	now := metav1.NewTime(time.Unix(1, 0))
	type change struct {
		how     mark
		changes bool
		// then is the generation of the definition at the end of the migration.
		then int64
	}
	for name, tc := range map[string]struct {
		steps []change
		want  []string
	}{
		"migrated": {[]change{{starts, true, 1}, {ends, true, 1}}, []string{"v2"}},
		"told twice": {[]change{{starts, true, 1}, {starts, false, 1}, {ends, true, 1},
			{ends, false, 1}}, []string{"v2"}},
		"failed":            {[]change{{starts, true, 1}, {fails, true, 1}}, []string{"v1", "v2"}},
		"changed meanwhile": {[]change{{starts, true, 2}, {ends, true, 2}}, []string{"v1", "v2"}},
		"changed meanwhile, told twice": {[]change{{starts, true, 2}, {ends, true, 2}, {ends, false, 2}},
			[]string{"v1", "v2"}},
		"defined after the migration began": {[]change{{ends, false, 1}}, []string{"v1", "v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			crd := crd.DeepCopy()
			crd.Status.StoredVersions = []string{"v1", "v2"}
			for i, s := range tc.steps {
				status, changed := marked(crd, s.how, now)
				if changed != s.changes {
					t.Errorf("step %d: changed %v, want %v", i, changed, s.changes)
				}
				crd.Status, crd.Generation = *status, s.then
			}
			if !slices.Equal(crd.Status.StoredVersions, tc.want) {
				t.Errorf("stored versions %v, want %v", crd.Status.StoredVersions, tc.want)
			}
		})
	}
}
