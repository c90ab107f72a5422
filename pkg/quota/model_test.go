// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

// model is the expected usage of all objects of the test, one number for each value that the test's
// quotas limit.
type model struct{ pods, withDeadline, mCPU, nodePorts, claims, gib int64 }

// TestUsageModel adds up the usage of random objects, and compares the sum with a simple count.
func TestUsageModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := map[schema.GroupResource][]runtime.Object{}
		add := func(resource string, obj runtime.Object) {
			objects[coreResource(resource)] = append(objects[coreResource(resource)], obj)
		}
		want := model{}
		for i := range rapid.IntRange(0, 20).Draw(t, "objects") {
			m := metav1.ObjectMeta{Name: fmt.Sprint(i)}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				add("pods", drawPod(t, m, &want))
			case 1:
				n := rapid.Int64Range(1, 3).Draw(t, "ports")
				s := &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
					Ports: make([]corev1.ServicePort, n)}}
				want.nodePorts += n
				add("services", s)
			case 2:
				gib := rapid.Int64Range(1, 9).Draw(t, "size")
				want.claims++
				want.gib += gib
				add("persistentvolumeclaims", &corev1.PersistentVolumeClaim{ObjectMeta: m, Spec: corev1.PersistentVolumeClaimSpec{
					Resources: corev1.VolumeResourceRequirements{Requests: list("storage", fmt.Sprintf("%dGi", gib))},
				}})
			}
		}
		evaluators := Configuration(clock.Real(), newDeviceSources(nil, nil)).Evaluators()
		usage := func(hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) corev1.ResourceList {
			quota := &corev1.ResourceQuota{
				Spec: corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}, Status: corev1.ResourceQuotaStatus{Hard: hard},
			}
			return addUsage(t, quota, evaluators, objects)
		}
		hard := list("pods", "1", "requests.cpu", "1", "services.nodeports", "1", "persistentvolumeclaims", "1",
			"requests.storage", "1")
		expect(t, usage(hard), corev1.ResourceList{
			"pods": quantity(int(want.pods)), "requests.cpu": *resource.NewMilliQuantity(want.mCPU, resource.DecimalSI),
			"services.nodeports": quantity(int(want.nodePorts)), "persistentvolumeclaims": quantity(int(want.claims)),
			"requests.storage": *resource.NewQuantity(want.gib<<30, resource.BinarySI),
		})
		expect(t, usage(list("pods", "1"), corev1.ResourceQuotaScopeTerminating),
			corev1.ResourceList{"pods": quantity(int(want.withDeadline))})
		expect(t, usage(list("pods", "1"), corev1.ResourceQuotaScopeNotTerminating),
			corev1.ResourceList{"pods": quantity(int(want.pods - want.withDeadline))})
	})
}

// addUsage returns the sum of the usage of all objects that the quota q counts.
func addUsage(
	t *rapid.T, q *corev1.ResourceQuota, evaluators []quotav1.Evaluator, objects map[schema.GroupResource][]runtime.Object,
) corev1.ResourceList {
	names := quotav1.ResourceNames(q.Spec.Hard)
	sum := corev1.ResourceList{}
	for _, name := range names {
		sum[name] = quantity(0)
	}
	for _, e := range evaluators {
		for _, obj := range objects[e.GroupResource()] {
			matches, err := e.Matches(q, obj)
			if err != nil {
				t.Fatal(err)
			}
			if !matches {
				continue
			}
			usage, err := e.Usage(obj)
			if err != nil {
				t.Fatal(err)
			}
			sum = quotav1.Add(sum, quotav1.Mask(usage, names))
		}
	}
	return sum
}

func drawPod(t *rapid.T, m metav1.ObjectMeta, want *model) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: m}
	milli := int64(0)
	for range rapid.IntRange(1, 3).Draw(t, "containers") {
		n := rapid.Int64Range(0, 2000).Draw(t, "cpu")
		milli += n
		pod.Spec.Containers = append(pod.Spec.Containers,
			corev1.Container{Resources: corev1.ResourceRequirements{Requests: list("cpu", fmt.Sprintf("%dm", n))}})
	}
	if n := rapid.Int64Range(0, 5000).Draw(t, "init"); n > 0 {
		milli = max(milli, n)
		pod.Spec.InitContainers = []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: list("cpu", fmt.Sprintf("%dm", n))}}}
	}
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning,
		corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
	hasDeadline := rapid.Bool().Draw(t, "has deadline")
	if hasDeadline {
		deadline := int64(5)
		pod.Spec.ActiveDeadlineSeconds = &deadline
	}
	if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning {
		want.pods++
		want.mCPU += milli
		if hasDeadline {
			want.withDeadline++
		}
	}
	return pod
}

func expect(t *rapid.T, got, want corev1.ResourceList) {
	t.Helper()
	if !quotav1.Equals(got, want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
}
