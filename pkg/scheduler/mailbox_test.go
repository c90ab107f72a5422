// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestMailbox compares a mailbox with plain lists. Some entries are marked as ones that must not be
// replaced. For each pod, the method take must return in order all marked entries, and of the other
// entries only those that no later entry replaced. It must return no entry twice.
func TestMailbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMailbox[int]()
		type entry struct {
			of   int
			must bool
		}
		model := map[types.UID][]entry{}
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				uid := types.UID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod"))
				must := rapid.Bool().Draw(t, "must")
				model[uid] = append(slices.DeleteFunc(model[uid], func(e entry) bool { return !e.must }), entry{i, must})
				m.put(uid, i, must)
				continue
			}
			limit := rapid.IntRange(1, 4).Draw(t, "limit")
			got := m.poll(limit)
			waiting := 0
			for _, w := range model {
				waiting += min(len(w), 1)
			}
			if len(got) != min(limit, waiting) {
				t.Fatalf("took %v, but %d pods have entries", got, waiting)
			}
			for _, of := range got {
				found := false
				for uid, w := range model {
					if len(w) > 0 && w[0].of == of {
						model[uid], found = w[1:], true
						break
					}
				}
				if !found {
					t.Fatalf("took %d, which is not the first of any pod in %v", of, model)
				}
			}
		}
	})
}
