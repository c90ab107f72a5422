// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestExtendedResources checks that a pod is also deleted if the tainted device was allocated for
// an extended resource of the pod, for which the scheduler created a claim
// (kubernetes/kubernetes#142289).
func TestExtendedResources(t *testing.T) {
	const namespace = "default"
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: "u"}}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "made"}
	taint := []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", Pool: resourcev1.ResourcePool{Name: "pool"},
		Devices: []resourcev1.Device{{Name: "x", Taints: taint}, {Name: "y"}},
	}}
	claim := func(owner string, device string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "p", UID: pod.UID, Controller: new(owner == "p")},
			}},
			Status: resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: "pool", Device: device}},
				}},
				ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: pod.UID}},
			},
		}
	}
	rule := func(device string) *resourcev1.DeviceTaintRule {
		return &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Device: &device}, Taint: taint[0]}}
	}
	for name, tc := range map[string]struct {
		claim  *resourcev1.ResourceClaim
		rule   *resourcev1.DeviceTaintRule
		leaves bool
	}{
		"tainted device":                {claim("p", "x"), nil, true},
		"another device":                {claim("p", "y"), nil, false},
		"another device, by a rule":     {claim("p", "y"), rule("y"), true},
		"a rule for the tainted device": {claim("p", "y"), rule("x"), false},
		"claim of another object":       {claim("other", "x"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			slices := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byPool: poolOfSlice})
			rules := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if tc.rule != nil {
				if err := rules.Add(tc.rule); err != nil {
					t.Fatal(err)
				}
			}
			if err := claims.Add(tc.claim); err != nil {
				t.Fatal(err)
			}
			if err := slices.Add(slice); err != nil {
				t.Fatal(err)
			}
			c := &devices{
				Deps:   controller.Deps{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))},
				claims: resourcelisters.NewResourceClaimLister(claims), slices: slices,
				rules: resourcelisters.NewDeviceTaintRuleLister(rules),
			}
			if _, leaves := c.evictAt(pod); leaves != tc.leaves {
				t.Errorf("leaves: %v, want %v", leaves, tc.leaves)
			}
		})
	}
}
