// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestConversions(t *testing.T) {
	for text, want := range map[string]struct{ value, milli int64 }{
		"0":                    {0, 0},
		"100m":                 {1, 100},
		"1.5":                  {2, 1500},
		"2Gi":                  {2 << 30, 2 << 30 * 1000},
		"9P":                   {9e15, 9e18},
		"10P":                  {10e15, math.MaxInt64},
		"9E":                   {9e18, math.MaxInt64},
		"9223372036854775806":  {math.MaxInt64 - 1, math.MaxInt64},
		"9223372036854775807":  {math.MaxInt64, math.MaxInt64},
		"9223372036854775808":  {math.MaxInt64, math.MaxInt64},
		"9223372036854775.806": {9223372036854776, math.MaxInt64 - 1},
		"9223372036854775.808": {9223372036854776, math.MaxInt64},
		"18446744073709551621": {math.MaxInt64, math.MaxInt64},
		"16E":                  {math.MaxInt64, math.MaxInt64},
		"1e30":                 {math.MaxInt64, math.MaxInt64},
		"8Ei":                  {math.MaxInt64, math.MaxInt64},
		"-1":                   {-1, -1000},
		"-9223372036854775808": {math.MinInt64, math.MinInt64},
		"-1e30":                {math.MinInt64, math.MinInt64},
	} {
		q := resource.MustParse(text)
		if got := Value(q); got != want.value {
			t.Errorf("Value(%s) = %d, want %d", text, got, want.value)
		}
		if got := Milli(q); got != want.milli {
			t.Errorf("Milli(%s) = %d, want %d", text, got, want.milli)
		}
	}
}
