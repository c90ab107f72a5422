// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// step is a ReplicaSet with the number of replicas that it should get.
type step struct {
	set  *appsv1.ReplicaSet
	size int32
}

// limits returns how many pods a rolling update may have above the Deployment's size (surge), and
// how many of that size may be unavailable.
func limits(d *appsv1.Deployment) (surge, unavailable int32, err error) {
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0, nil
	}
	r, replicas := d.Spec.Strategy.RollingUpdate, int(*d.Spec.Replicas)
	s, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxSurge, intstr.FromInt32(0)), replicas, true)
	if err != nil {
		return 0, 0, fmt.Errorf("maxSurge: %w", err)
	}
	u, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable,
		intstr.FromInt32(0)), replicas, false)
	if err != nil {
		return 0, 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	if s == 0 && u == 0 {
		u = 1 // if both limits were 0, no pod could be replaced
	}
	return int32(s), min(int32(u), *d.Spec.Replicas), nil
}

func replicas(sets []*appsv1.ReplicaSet) int32 {
	var n int32
	for _, s := range sets {
		n += *s.Spec.Replicas
	}
	return n
}

func available(sets ...*appsv1.ReplicaSet) int32 {
	var n int32
	for _, s := range sets {
		if s != nil {
			n += s.Status.AvailableReplicas
		}
	}
	return n
}

// newestSize returns the size for the ReplicaSet of the present template: at most the Deployment's
// size, and during a rolling update no more than the surge allows in addition to the other
// ReplicaSets.
func newestSize(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, newest *appsv1.ReplicaSet) (int32, error) {
	want, has := *d.Spec.Replicas, int32(0)
	if newest != nil {
		has = *newest.Spec.Replicas
	}
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || has >= want {
		return want, nil
	}
	surge, _, err := limits(d)
	if err != nil {
		return 0, err
	}
	room := want + surge - replicas(sets)
	return min(has+max(room, 0), want), nil
}

// shrink returns smaller sizes for old ReplicaSets. It first removes pods that are not available,
// and then available ones as long as enough pods stay available.
func shrink(d *appsv1.Deployment, sets, old []*appsv1.ReplicaSet, newest *appsv1.ReplicaSet) ([]step, error) {
	_, unavailable, err := limits(d)
	if err != nil || replicas(old) == 0 {
		return nil, err
	}
	least := *d.Spec.Replicas - unavailable
	newUnavailable := *newest.Spec.Replicas - newest.Status.AvailableReplicas
	spare := replicas(sets) - least - newUnavailable
	if spare <= 0 {
		return nil, nil
	}
	sizes := map[*appsv1.ReplicaSet]int32{}
	for _, s := range old {
		sizes[s] = *s.Spec.Replicas
	}
	for _, s := range old {
		unhealthy := min(sizes[s]-s.Status.AvailableReplicas, spare)
		if unhealthy > 0 {
			sizes[s] -= unhealthy
			spare -= unhealthy
		}
	}
	free := available(sets...) - least
	for _, s := range old {
		if free <= 0 {
			break
		}
		n := min(sizes[s], free)
		sizes[s] -= n
		free -= n
	}
	var steps []step
	for _, s := range old {
		if sizes[s] != *s.Spec.Replicas {
			steps = append(steps, step{s, sizes[s]})
		}
	}
	return steps, nil
}

// proportions distributes a change of the Deployment's size among sets, the ReplicaSets with pods,
// in proportion to their sizes. So a rollout in progress keeps its ratio of old and new pods.
func proportions(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) ([]step, error) {
	surge, _, err := limits(d)
	if err != nil {
		return nil, err
	}
	allowed := int32(0)
	if *d.Spec.Replicas > 0 {
		allowed = *d.Spec.Replicas + surge
	}
	diff := allowed - replicas(sets)
	sets = slices.Clone(sets)
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		// If the Deployment grows, newer ReplicaSets come first, otherwise older ones.
		age := b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
		if diff < 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), age)
	})
	left := diff
	var steps []step
	for _, s := range sets {
		size := *s.Spec.Replicas
		if part := share(d, s, allowed, diff, left); diff != 0 {
			size += part
			left -= part
		}
		steps = append(steps, step{s, size})
	}
	if len(steps) > 0 && left != 0 {
		steps[0].size = max(steps[0].size+left, 0)
	}
	return steps, nil
}

// share returns by how much the size of one ReplicaSet changes if the total size of all ReplicaSets
// changes by diff, to the size allowed. The argument left is the part of diff that the other
// ReplicaSets have not got yet.
func share(d *appsv1.Deployment, s *appsv1.ReplicaSet, allowed, diff, left int32) int32 {
	if *s.Spec.Replicas == 0 || diff == 0 || left == 0 {
		return 0
	}
	before, err := strconv.ParseInt(s.Annotations[annotationMax], 10, 32)
	if err != nil || before == 0 {
		before = int64(d.Status.Replicas)
	}
	var part int32
	if *d.Spec.Replicas == 0 {
		part = -*s.Spec.Replicas
	} else if before > 0 {
		grown := float64(*s.Spec.Replicas) * float64(allowed) / float64(before)
		part = int32(grown+0.5) - *s.Spec.Replicas
	}
	if diff > 0 {
		return max(min(part, left), 0)
	}
	return min(max(part, left), 0)
}

// findNewest returns the ReplicaSet of the present template, or nil if there is none. If there are
// several, it returns the oldest.
func findNewest(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	for _, s := range sets {
		if sameTemplate(d, s) {
			return s
		}
	}
	return nil
}

func sameTemplate(d *appsv1.Deployment, s *appsv1.ReplicaSet) bool {
	a, b := d.Spec.Template.DeepCopy(), s.Spec.Template.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}

func byAge(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	out := slices.Clone(sets)
	slices.SortFunc(out, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}
