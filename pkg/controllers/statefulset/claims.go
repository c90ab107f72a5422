// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// retentionPolicy returns the retention policy for the StatefulSet's PersistentVolumeClaims. By
// default, claims are retained.
func retentionPolicy(set *appsv1.StatefulSet) appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if set.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		return appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain}
	}
	return *set.Spec.PersistentVolumeClaimRetentionPolicy
}

// newClaims returns the claims that the pod with the given ordinal needs.
func newClaims(set *appsv1.StatefulSet, ordinal int) []*v1.PersistentVolumeClaim {
	var out []*v1.PersistentVolumeClaim
	for i := range set.Spec.VolumeClaimTemplates {
		claim := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Name, claim.Namespace = claimName(set, claim.Name, ordinal), set.Namespace
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		out = append(out, claim)
	}
	return out
}

// refersTo reports whether an owner reference has the name of o and the given kind. The UID may
// differ.
func refersTo(ref metav1.OwnerReference, o metav1.Object, kind schema.GroupVersionKind) bool {
	return ref.APIVersion == kind.GroupVersion().String() && ref.Kind == kind.Kind && ref.Name == o.GetName()
}

// stale reports whether a claim belongs to an earlier object with the name of o, which is a
// StatefulSet or a pod. The garbage collector will delete such a claim, so it must not be changed.
func stale(claim *v1.PersistentVolumeClaim, o metav1.Object, kind schema.GroupVersionKind) bool {
	i := slices.IndexFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool { return refersTo(ref, o, kind) })
	return i >= 0 && claim.OwnerReferences[i].UID != o.GetUID()
}

// claimOwners returns the owner references that a claim must have so that the garbage collector
// carries out the StatefulSet's retention policy. The claim has no owner if it is retained. Its
// owner is the set if it is deleted with the set. Its owner is the pod if the set was scaled down
// below the pod's ordinal and the policy deletes the claim then. change reports whether the
// references must be changed. contested is true if another object controls the claim; then the
// policy is not applied.
func claimOwners(claim *v1.PersistentVolumeClaim, set *appsv1.StatefulSet,
	pod *v1.Pod) (refs []metav1.OwnerReference, change, contested bool) {
	if stale(claim, set, kind) || stale(claim, pod, podKind) {
		return nil, false, hasOtherController(claim, set, pod)
	}
	p := retentionPolicy(set)
	gone := !inRange(set, ordinalOf(pod))
	bySet := p.WhenDeleted == remove && (p.WhenScaled != remove || !gone)
	byPod := p.WhenScaled == remove && gone
	if hasOtherController(claim, set, pod) {
		bySet, byPod, contested = false, false, true
	}
	var hasSet, hasPod, weak bool
	for _, ref := range claim.OwnerReferences {
		isSet, isPod := ref.UID == set.UID, ref.UID == pod.UID
		hasSet, hasPod = hasSet || isSet, hasPod || isPod
		weak = weak || (isSet || isPod) && (ref.Controller == nil || !*ref.Controller)
		if !refersTo(ref, set, kind) && !refersTo(ref, pod, podKind) {
			refs = append(refs, ref)
		}
	}
	if hasSet == bySet && hasPod == byPod && !weak {
		return nil, false, contested
	}
	if bySet {
		refs = append(refs, *metav1.NewControllerRef(set, kind))
	}
	if byPod {
		refs = append(refs, *metav1.NewControllerRef(pod, podKind))
	}
	return refs, true, contested
}

// hasOtherController reports whether another object than the StatefulSet or the pod controls a
// claim. It returns false if the set's policy retains all claims.
func hasOtherController(claim *v1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *v1.Pod) bool {
	if p := retentionPolicy(set); p.WhenDeleted == retain && p.WhenScaled == retain {
		return false // a policy that retains all claims adds no owners, so another controller does not matter
	}
	return slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		switch {
		case refersTo(ref, set, kind):
			return ref.UID != set.UID
		case refersTo(ref, pod, podKind):
			return ref.UID != pod.UID
		}
		return ref.Controller != nil && *ref.Controller
	})
}
