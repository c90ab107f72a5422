// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/api/quantity"
	"keelson.dev/scheduling"
)

// FromList converts quantities to Resources. An amount above 64 bits becomes math.MaxInt64.
func FromList(list v1.ResourceList) scheduling.Resources {
	var r scheduling.Resources
	for name, q := range list {
		switch name {
		case v1.ResourceCPU:
			r.MilliCPU = quantity.Milli(q)
		case v1.ResourceMemory:
			r.Memory = quantity.Value(q)
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value(q)
		case v1.ResourcePods:
			r.Pods = quantity.Value(q)
		default:
			if r.Scalar == nil {
				r.Scalar = make(map[v1.ResourceName]int64)
			}
			r.Scalar[name] = quantity.Value(q)
		}
	}
	return r
}

// add adds b to a. A sum above 64 bits becomes math.MaxInt64: no node has room beside it.
func add(a, b *scheduling.Resources) {
	each(a, b, func(x *int64, y int64) {
		if *x > math.MaxInt64-y {
			*x = math.MaxInt64
			return
		}
		*x += y
	})
}

// subtract subtracts b from a. It returns false, and a is wrong, if a sum in a did not fit into 64
// bits: the caller must add everything again.
func subtract(a, b *scheduling.Resources) bool {
	exact := true
	each(a, b, func(x *int64, y int64) {
		exact = exact && *x < math.MaxInt64
		*x -= y
	})
	return exact
}

// each calls f for each resource in b, with the place of the amount in a. Amounts in b are not
// negative: the API server rejects negative requests.
func each(a, b *scheduling.Resources, f func(x *int64, y int64)) {
	f(&a.MilliCPU, b.MilliCPU)
	f(&a.Memory, b.Memory)
	f(&a.EphemeralStorage, b.EphemeralStorage)
	f(&a.Pods, b.Pods)
	for name, y := range b.Scalar {
		if a.Scalar == nil {
			a.Scalar = make(map[v1.ResourceName]int64, len(b.Scalar))
		}
		x := a.Scalar[name]
		f(&x, y)
		a.Scalar[name] = x
	}
}
