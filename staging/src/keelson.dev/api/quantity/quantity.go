// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quantity converts resource quantities to 64-bit integers. A quantity can be much
// larger, and the conversions of k8s.io/apimachinery 0.37 then wrap around: 16E becomes 0.
// Those of this package return the largest or smallest integer instead, as the conversions of
// Kubernetes 1.38 do.
package quantity

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value returns q, rounded up to a whole number.
func Value(q resource.Quantity) int64 { return scaled(&q, 0, 1) }

// Milli returns q in thousandths, rounded up to a whole number.
func Milli(q resource.Quantity) int64 { return scaled(&q, resource.Milli, 1000) }

// scaled returns q in units of 10^scale, rounded up. units is the number of these units in 1.
func scaled(q *resource.Quantity, scale resource.Scale, units float64) int64 {
	const safe = 1 << 62 // below the largest int64; smaller values are exact enough as float64
	switch f := q.AsApproximateFloat64() * units; {
	case f >= safe && q.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0:
		return math.MaxInt64
	case f <= -safe && q.Cmp(*resource.NewScaledQuantity(math.MinInt64, scale)) <= 0:
		return math.MinInt64
	}
	return q.ScaledValue(scale)
}
