// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package utilization

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

func TestScore(t *testing.T) {
	s, errs := NewShape([]configv1.UtilizationShapePoint{
		{Utilization: 10, Score: 1}, {Utilization: 60, Score: 10}, {Utilization: 90, Score: 4},
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for used, want := range map[int64]int64{0: 10, 10: 10, 11: 11, 15: 19, 60: 100, 61: 98, 75: 70, 90: 40, 100: 40} {
		if got := s.Score(used); got != want {
			t.Errorf("%d %% used: %d, want %d", used, got, want)
		}
	}
}

func TestInvalidShapes(t *testing.T) {
	for name, tc := range map[string]struct {
		points []configv1.UtilizationShapePoint
		want   string
	}{
		"no points": {nil, "shape: Required value: at least one point must be specified"},
		"not sorted": {[]configv1.UtilizationShapePoint{{Utilization: 5}, {Utilization: 5}},
			"shape[1].utilization: Invalid value: 5: values must be sorted in increasing order"},
		"more than everything": {[]configv1.UtilizationShapePoint{{Utilization: 101}},
			"shape[0].utilization: Invalid value: 101: not in valid range [0, 100]"},
		"high score": {[]configv1.UtilizationShapePoint{{Score: 11}},
			"shape[0].score: Invalid value: 11: not in valid range [0, 10]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := NewShape(tc.points, field.NewPath("shape"))
			if len(errs) != 1 || errs[0].Error() != tc.want {
				t.Errorf("%v, want %s", errs, tc.want)
			}
		})
	}
}

func TestMean(t *testing.T) {
	for sum := range int64(300) {
		for weights := int64(1); weights < 9; weights++ {
			want := int64(math.Round(float64(sum) / float64(weights)))
			if got := Mean(sum, weights); got != want {
				t.Errorf("%d/%d: %d, want %d", sum, weights, got, want)
			}
		}
	}
}
