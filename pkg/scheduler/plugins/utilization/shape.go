// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package utilization computes a score from how much of a capacity is used. Users configure the score
// as a shape: points between which it changes linearly.
package utilization

import (
	"math/bits"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/scheduling"
)

// maxScore is the highest score of a point in configuration files.
const maxScore = 10

// Shape maps the used percentage of a capacity to a score of at most scheduling.MaxNodeScore.
type Shape []point

type point struct{ used, score int64 }

// NewShape returns the shape with the points of a configuration file. path is the field that has them,
// for the errors.
func NewShape(points []configv1.UtilizationShapePoint, path *field.Path) (Shape, field.ErrorList) {
	if len(points) == 0 {
		return nil, field.ErrorList{field.Required(path, "at least one point must be specified")}
	}
	var errs field.ErrorList
	for i := 1; i < len(points); i++ {
		if points[i-1].Utilization >= points[i].Utilization {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), points[i].Utilization,
				"values must be sorted in increasing order"))
			break
		}
	}
	var s Shape
	for i, p := range points {
		if p.Utilization < 0 || p.Utilization > 100 {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), p.Utilization,
				"not in valid range [0, 100]"))
		}
		if p.Score < 0 || p.Score > maxScore {
			errs = append(errs, field.Invalid(path.Index(i).Child("score"), p.Score, "not in valid range [0, 10]"))
		}
		s = append(s, point{int64(p.Utilization), int64(p.Score) * scheduling.MaxNodeScore / maxScore})
	}
	return s, errs
}

// Score interpolates between the points below and above a percentage.
func (s Shape) Score(used int64) int64 {
	for i, p := range s {
		if used > p.used {
			continue
		}
		if i == 0 {
			return p.score
		}
		before := s[i-1]
		return before.score + (p.score-before.score)*(used-before.used)/(p.used-before.used)
	}
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].score
}

// Percent returns part/whole in percent, rounded down and at least 0 and at most 100. whole must be
// positive. The product with 100 may need more than 64 bits.
func Percent(part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(min(max(part, 0), whole)), 100)
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q) // at most 100
}

// Mean returns sum/weights, rounded half up. weights must be positive, and sum not negative.
func Mean(sum, weights int64) int64 {
	return sum/weights + sum%weights/(weights-weights/2)
}
