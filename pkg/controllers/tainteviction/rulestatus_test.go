// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

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

// start starts an API server with the controller. One pod, p, uses the device x of the pool named pool, and
// tolerates its taints for an hour. The controller's clock stands still, so it does nothing later.
func start(t *testing.T) (*testserver.Server, *devices) {
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
	var c *devices
	controllertest.RunAs(t, s, "device-taint-eviction-controller", controller.Options{},
		func(d controller.Deps) (controller.Controller, error) {
			d.Clock = clocktesting.NewFakeClock(time.Now())
			made, err := NewDevices(d)
			c = made.(*devices)
			return c, err
		})
	return s, c
}

// newRule creates a rule with the given effect for all devices of a pool, and returns its name.
func newRule(t *testing.T, s *testserver.Server, pool string, effect resourcev1.DeviceTaintEffect) string {
	t.Helper()
	rule, err := s.Client.ResourceV1().DeviceTaintRules().Create(t.Context(), &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rule-"}, Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Pool: &pool},
			Taint:          resourcev1.DeviceTaint{Key: "example.com/a", Effect: effect}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return rule.Name
}

// becomes waits until the condition of a rule is want, and returns the rule.
func becomes(t *testing.T, s *testserver.Server, name, want string) *resourcev1.DeviceTaintRule {
	t.Helper()
	var rule *resourcev1.DeviceTaintRule
	controllertest.Eventually(t, want, func(ctx context.Context) (any, bool) {
		var err error
		rule, err = s.Client.ResourceV1().DeviceTaintRules().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		c := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
		return rule.Status, c != nil && textOf(*c) == want && c.ObservedGeneration == rule.Generation
	})
	return rule
}

const onePod = "True PodsPendingEviction 1 pod needs to be evicted in 1 namespace."

// TestRuleStatus checks that the controller writes the condition of a new rule.
func TestRuleStatus(t *testing.T) {
	s, _ := start(t)
	for effect, want := range map[resourcev1.DeviceTaintEffect]string{
		resourcev1.DeviceTaintEffectNoExecute: onePod,
		resourcev1.DeviceTaintEffectNone: "False NoEffect 2 published devices selected. 1 allocated device selected. " +
			"1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated " +
			"again. Recreate the DeviceTaintRule to trigger an update.",
		resourcev1.DeviceTaintEffectNoSchedule: "False OtherEffect Eviction only happens for the NoExecute effect.",
	} {
		becomes(t, s, newRule(t, s, "pool", effect), want)
	}
}

// age makes a change to the condition of a rule, and sets its time so that the controller may change the
// condition at once.
func age(t *testing.T, s *testserver.Server, rule *resourcev1.DeviceTaintRule, change func(*metav1.Condition)) {
	t.Helper()
	c := &rule.Status.Conditions[0]
	change(c)
	c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(-2 * statusPeriod))
	if _, err := s.Client.ResourceV1().DeviceTaintRules().UpdateStatus(t.Context(), rule,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestLateRuleStatus checks that the controller corrects a late write of the condition, though no pod
// changes after it.
func TestLateRuleStatus(t *testing.T) {
	const want = "False NotStarted "
	s, _ := start(t)
	rule := becomes(t, s, newRule(t, s, "empty", resourcev1.DeviceTaintEffectNoExecute), want)
	age(t, s, rule, func(c *metav1.Condition) {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "PodsPendingEviction", "late"
	})
	becomes(t, s, rule.Name, want)
}

// TestWaitingPodStays checks that the controller updates the condition when a pod that waits for its
// eviction is not evicted any more, because a client deletes the pod or releases its claim.
func TestWaitingPodStays(t *testing.T) {
	for name, end := range map[string]func(context.Context, kubernetes.Interface) error{
		"pod deleted": func(ctx context.Context, client kubernetes.Interface) error {
			return client.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		},
		"claim released": func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.ResourceV1().ResourceClaims("default").Patch(ctx, "c", types.MergePatchType,
				[]byte(`{"status":{"reservedFor":null}}`), metav1.PatchOptions{}, "status")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := start(t)
			rule := becomes(t, s, newRule(t, s, "pool", resourcev1.DeviceTaintEffectNoExecute), onePod)
			age(t, s, rule, func(*metav1.Condition) {})
			controllertest.Eventually(t, "the pod waits", func(context.Context) (any, bool) {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.waiting), len(c.waiting) == 1
			})
			if err := end(t.Context(), s.Client); err != nil {
				t.Fatal(err)
			}
			becomes(t, s, rule.Name, "False NotStarted ")
		})
	}
}
