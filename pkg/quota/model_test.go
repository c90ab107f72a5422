// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

// model counts as a reader of the documentation would: one number at a time.
type model struct{ pods, bounded, mCPU, nodePorts, claims, gib int64 }

// TestUsageModel compares what a namespace uses with a naive count.
func TestUsageModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stores := map[string]cache.Indexer{}
		lister := func(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
			if stores[gvr.Resource] == nil {
				stores[gvr.Resource] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			}
			return cache.NewGenericLister(stores[gvr.Resource], gvr.GroupResource()), nil
		}
		add := func(resource string, obj any) {
			if _, err := lister(core(resource)); err != nil {
				t.Fatal(err)
			}
			if err := stores[resource].Add(obj); err != nil {
				t.Fatal(err)
			}
		}
		want := model{}
		for i := range rapid.IntRange(0, 20).Draw(t, "objects") {
			m := metav1.ObjectMeta{Namespace: rapid.SampledFrom([]string{"here", "there"}).Draw(t, "namespace"), Name: fmt.Sprint(i)}
			here := int64(0)
			if m.Namespace == "here" {
				here = 1
			}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				add("pods", drawPod(t, m, here, &want))
			case 1:
				n := rapid.Int64Range(1, 3).Draw(t, "ports")
				s := &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: make([]corev1.ServicePort, n)}}
				want.nodePorts += here * n
				add("services", s)
			case 2:
				gib := rapid.Int64Range(1, 9).Draw(t, "size")
				want.claims += here
				want.gib += here * gib
				add("persistentvolumeclaims", &corev1.PersistentVolumeClaim{ObjectMeta: m, Spec: corev1.PersistentVolumeClaimSpec{
					Resources: corev1.VolumeResourceRequirements{Requests: list("storage", fmt.Sprintf("%dGi", gib))},
				}})
			}
		}
		registry := generic.NewRegistry(Configuration(lister, clock.Real(), seenWith(nil, nil)).Evaluators())
		usage := func(hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) corev1.ResourceList {
			got, err := quotav1.CalculateUsage("here", scopes, hard, registry, nil)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		hard := list("pods", "1", "requests.cpu", "1", "services.nodeports", "1", "persistentvolumeclaims", "1", "requests.storage", "1")
		expect(t, usage(hard), corev1.ResourceList{
			"pods": count(int(want.pods)), "requests.cpu": *resource.NewMilliQuantity(want.mCPU, resource.DecimalSI),
			"services.nodeports": count(int(want.nodePorts)), "persistentvolumeclaims": count(int(want.claims)),
			"requests.storage": *resource.NewQuantity(want.gib<<30, resource.BinarySI),
		})
		expect(t, usage(list("pods", "1"), corev1.ResourceQuotaScopeTerminating), corev1.ResourceList{"pods": count(int(want.bounded))})
		expect(t, usage(list("pods", "1"), corev1.ResourceQuotaScopeNotTerminating), corev1.ResourceList{"pods": count(int(want.pods - want.bounded))})
	})
}

func drawPod(t *rapid.T, m metav1.ObjectMeta, here int64, want *model) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: m}
	milli := int64(0)
	for range rapid.IntRange(1, 3).Draw(t, "containers") {
		n := rapid.Int64Range(0, 2000).Draw(t, "cpu")
		milli += n
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: list("cpu", fmt.Sprintf("%dm", n))}})
	}
	if n := rapid.Int64Range(0, 5000).Draw(t, "init"); n > 0 {
		milli = max(milli, n)
		pod.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", fmt.Sprintf("%dm", n))}}}
	}
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
	isBounded := rapid.Bool().Draw(t, "bounded")
	if isBounded {
		deadline := int64(5)
		pod.Spec.ActiveDeadlineSeconds = &deadline
	}
	if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning {
		want.pods += here
		want.mCPU += here * milli
		if isBounded {
			want.bounded += here
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
