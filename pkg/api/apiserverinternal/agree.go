// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserverinternal

import (
	"slices"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Common is the version that all servers store in; nil: they differ, or there is none.
func Common(servers []apiserverinternalv1alpha1.ServerStorageVersion) *string {
	if len(servers) == 0 {
		return nil
	}
	common := servers[0].EncodingVersion
	if slices.ContainsFunc(servers, func(s apiserverinternalv1alpha1.ServerStorageVersion) bool { return s.EncodingVersion != common }) {
		return nil
	}
	return &common
}

// Agree makes the rest of a status fit its list of servers: who writes the one
// writes the other.
func Agree(v *apiserverinternalv1alpha1.StorageVersion, now time.Time) {
	s := &v.Status
	was := s.CommonEncodingVersion
	s.CommonEncodingVersion = Common(s.StorageVersions)
	next := apiserverinternalv1alpha1.StorageVersionCondition{
		Type: apiserverinternalv1alpha1.AllEncodingVersionsEqual, Status: apiserverinternalv1alpha1.ConditionFalse,
		ObservedGeneration: v.Generation, LastTransitionTime: metav1.NewTime(now),
		Reason: "CommonEncodingVersionUnset", Message: "Common encoding version unset",
	}
	if s.CommonEncodingVersion != nil {
		next.Status, next.Reason, next.Message = apiserverinternalv1alpha1.ConditionTrue, "CommonEncodingVersionSet", "Common encoding version set"
	}
	at := slices.IndexFunc(s.Conditions, func(c apiserverinternalv1alpha1.StorageVersionCondition) bool { return c.Type == next.Type })
	if at < 0 {
		s.Conditions = append(s.Conditions, next)
		return
	}
	// Another version for all is a transition too.
	moved := was != nil && s.CommonEncodingVersion != nil && *was != *s.CommonEncodingVersion
	if s.Conditions[at].Status == next.Status && !moved {
		next.LastTransitionTime = s.Conditions[at].LastTransitionTime
	}
	s.Conditions[at] = next
}
