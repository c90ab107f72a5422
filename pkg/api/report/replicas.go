// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "k8s.io/apimachinery/pkg/util/validation/field"

// Count is one of the counts in the status of what runs replicas.
type Count struct {
	Name string
	N    int32
}

// Counts judges the counts of a status each by itself.
func (r *Report) Counts(path *field.Path, counts ...Count) {
	for _, c := range counts {
		r.NotNegative(path.Child(c.Name), int64(c.N))
	}
}

// Replicas judges the counts of a status against the count of all replicas. The
// last two are the ready and the available ones.
func (r *Report) Replicas(path *field.Path, replicas int32, counts ...Count) {
	for _, c := range counts {
		if c.N > replicas {
			r.Invalid(path.Child(c.Name), c.N, "cannot be greater than status.replicas")
		}
	}
	ready, available := counts[len(counts)-2], counts[len(counts)-1]
	if available.N > ready.N {
		r.Invalid(path.Child(available.Name), available.N, "cannot be greater than readyReplicas")
	}
}

// NotDecremented reports a counter that went back or was lost. One that there was
// not may begin anywhere.
func (r *Report) NotDecremented(path *field.Path, is, was *int32) {
	switch {
	case was == nil:
	case is == nil:
		r.Invalid(path, int32(0), "cannot be decremented")
	case *is < *was:
		r.Invalid(path, *is, "cannot be decremented")
	}
}
