// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/api/quantity"
	"keelson.dev/scheduling"
)

// FromList converts quantities to Resources. An amount that exceeds 64 bits becomes math.MaxInt64.
// A negative amount, which can only occur in a status, becomes 0.
func FromList(list v1.ResourceList) scheduling.Resources {
	var r scheduling.Resources
	for name, q := range list {
		value := max(0, quantity.Value(q))
		switch name {
		case v1.ResourceCPU:
			r.MilliCPU = max(0, quantity.Milli(q))
		case v1.ResourceMemory:
			r.Memory = value
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage = value
		case v1.ResourcePods:
			r.Pods = value
		default:
			if r.Scalar == nil {
				r.Scalar = make(map[v1.ResourceName]int64)
			}
			r.Scalar[name] = value
		}
	}
	return r
}

// add adds b to a. A sum that exceeds 64 bits becomes math.MaxInt64. No other pod that requests the
// resource fits a node with such a sum.
func add(a, b *scheduling.Resources) {
	each(a, b, func(x, y int64) int64 {
		if x > math.MaxInt64-y {
			return math.MaxInt64
		}
		return x + y
	})
}

// subtract subtracts b from a. It returns false if a sum in a had been limited to 64 bits. In that
// case a is wrong, and the caller must compute the sum again.
func subtract(a, b *scheduling.Resources) bool {
	exact := true
	each(a, b, func(x, y int64) int64 {
		exact = exact && x < math.MaxInt64
		return x - y
	})
	return exact
}

// each replaces each amount x in a by f(x, y), where y is the amount in b. Resources that b does
// not have stay unchanged. Amounts in b are not negative, because FromList makes them.
func each(a, b *scheduling.Resources, f func(x, y int64) int64) {
	a.MilliCPU = f(a.MilliCPU, b.MilliCPU)
	a.Memory = f(a.Memory, b.Memory)
	a.EphemeralStorage = f(a.EphemeralStorage, b.EphemeralStorage)
	a.Pods = f(a.Pods, b.Pods)
	for name, y := range b.Scalar {
		if a.Scalar == nil {
			a.Scalar = make(map[v1.ResourceName]int64, len(b.Scalar))
		}
		a.Scalar[name] = f(a.Scalar[name], y)
	}
}
