// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetainteviction

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestCondition checks the texts of the condition EvictionInProgress.
func TestCondition(t *testing.T) {
	const again = " if the effect was NoExecute. This information will not be updated again. Recreate the " +
		"DeviceTaintRule to trigger an update."
	for name, tc := range map[string]struct {
		effect  resourcev1.DeviceTaintEffect
		effects effects
		want    string
	}{
		"not started": {resourcev1.DeviceTaintEffectNoExecute, effects{}, "False NotStarted "},
		"one pod": {resourcev1.DeviceTaintEffectNoExecute, effects{pods: 1, namespaces: 1},
			"True PodsPendingEviction 1 pod needs to be evicted in 1 namespace."},
		"some pods": {resourcev1.DeviceTaintEffectNoExecute, effects{pods: 3, namespaces: 2, evicted: 1},
			"True PodsPendingEviction 3 pods need to be evicted in 2 different namespaces. " +
				"1 pod evicted since starting the controller."},
		"completed": {resourcev1.DeviceTaintEffectNoExecute, effects{evicted: 2},
			"False Completed 2 pods evicted since starting the controller."},
		"no effect": {resourcev1.DeviceTaintEffectNone, effects{},
			"False NoEffect 0 published devices selected. 0 allocated devices selected. 0 pods would be evicted in " +
				"0 different namespaces" + again},
		"no effect, one of each": {resourcev1.DeviceTaintEffectNone,
			effects{published: 1, allocated: 1, pods: 1, namespaces: 1},
			"False NoEffect 1 published device selected. 1 allocated device selected. 1 pod would be evicted in " +
				"1 namespace" + again},
		"other effect": {resourcev1.DeviceTaintEffectNoSchedule, effects{},
			"False OtherEffect Eviction only happens for the NoExecute effect."},
	} {
		t.Run(name, func(t *testing.T) {
			rule := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
				Taint: resourcev1.DeviceTaint{Effect: tc.effect}}}
			if got := textOf(conditionOf(rule, tc.effects)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func textOf(c metav1.Condition) string { return string(c.Status) + " " + c.Reason + " " + c.Message }

// TestRuleStatus checks that the controller writes the condition of a new rule. One pod uses a device of
// the rule, and tolerates its taint for an hour.
func TestRuleStatus(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	ctx, resources := t.Context(), s.Client.ResourceV1()
	none := metav1.CreateOptions{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for pool, generation := range map[string]int64{"old": 1, "new": 2} {
		_, err := resources.ResourceSlices().Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: pool},
			Spec: resourcev1.ResourceSliceSpec{Driver: "d.example.com", NodeName: new("n"),
				Pool:    resourcev1.ResourcePool{Name: "pool", Generation: generation, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "x"}, {Name: "y"}}}}, none)
		must(err)
	}
	claim, err := resources.ResourceClaims("default").Create(ctx, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "class"}}}}}}, none)
	must(err)
	pod, err := s.Client.CoreV1().Pods("default").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}},
			ResourceClaims: []v1.PodResourceClaim{{Name: "c", ResourceClaimName: new("c")}}}}, none)
	must(err)
	claim.Status = resourcev1.ResourceClaimStatus{
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: pod.UID}},
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "pool",
				Device: "x", Tolerations: []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists,
					Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(3600))}}}}}},
	}
	_, err = resources.ResourceClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	must(err)
	controllertest.RunAs(t, s, "device-taint-eviction-controller", controller.Options{}, New)

	for effect, want := range map[resourcev1.DeviceTaintEffect]string{
		resourcev1.DeviceTaintEffectNoExecute: "True PodsPendingEviction 1 pod needs to be evicted in 1 namespace.",
		resourcev1.DeviceTaintEffectNone: "False NoEffect 2 published devices selected. 1 allocated device selected. " +
			"1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated " +
			"again. Recreate the DeviceTaintRule to trigger an update.",
		resourcev1.DeviceTaintEffectNoSchedule: "False OtherEffect Eviction only happens for the NoExecute effect.",
	} {
		rule, err := resources.DeviceTaintRules().Create(ctx, &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "rule-"}, Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Pool: new("pool")},
				Taint:          resourcev1.DeviceTaint{Key: "example.com/a", Effect: effect}}}, none)
		must(err)
		controllertest.Eventually(t, string(effect), func(ctx context.Context) (any, bool) {
			rule, err = resources.DeviceTaintRules().Get(ctx, rule.Name, metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			c := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
			return rule.Status, c != nil && textOf(*c) == want && c.ObservedGeneration == rule.Generation
		})
	}
}
