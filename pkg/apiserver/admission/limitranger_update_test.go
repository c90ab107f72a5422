// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLimitsOfUpdates checks that a new or stricter LimitRange applies only to values that an
// update changes. Otherwise, not even a label or finalizer of an older claim could be changed. See
// kubernetes/kubernetes#142170 and #142171.
func TestLimitsOfUpdates(t *testing.T) {
	s := pluginServer(t)
	core := s.Client.CoreV1()
	class := "class"
	if _, err := s.Client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "x.y", AllowVolumeExpansion: new(true),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class, VolumeName: "v",
			Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Mi")},
		}}
	bound, err := core.PersistentVolumeClaims("default").Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound.Status.Phase, bound.Status.Capacity = corev1.ClaimBound, list("storage", "1Mi")
	if _, err := core.PersistentVolumeClaims("default").UpdateStatus(t.Context(), bound,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	running := pod("p", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: list("cpu", "20m", "memory", "30Mi"), Limits: list("cpu", "50m", "memory", "60Mi"),
		}
	})
	if _, err := core.Pods("default").Create(t.Context(), running, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage", "1Gi"), Max: list("storage", "5Gi")},
			{Type: corev1.LimitTypeContainer, Min: list("cpu", "5m"), Max: list("memory", "40Mi", "cpu", "100m"),
				MaxLimitRequestRatio: list("memory", "1")},
			{Type: corev1.LimitTypePod, Max: list("memory", "50Mi", "cpu", "80m")},
		}}}
	if _, err := core.LimitRanges("default").Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	small := claim.DeepCopy()
	small.Name = "d"
	eventually(t, "limit range in force", func(ctx context.Context) bool {
		_, err := core.PersistentVolumeClaims("default").Create(ctx, small,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	for _, tc := range []struct{ name, what, patch, refused string }{
		{"label of a small claim", "claim", `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"finalizers of a small claim", "claim", `{"metadata":{"finalizers":[]}}`, ""},
		{"same request, spelt otherwise", "claim", `{"spec":{"resources":{"requests":{"storage":"1024Ki"}}}}`, ""},
		{"another request below the minimum", "claim", `{"spec":{"resources":{"requests":{"storage":"2Mi"}}}}`,
			"minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Mi"},
		{"request above the maximum", "claim", `{"spec":{"resources":{"requests":{"storage":"6Gi"}}}}`,
			"maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"},
		{"processor of a container with too much memory", "pod", resize(`"requests":{"cpu":"30m"}`), ""},
		{"more memory than is too much", "pod", resize(`"limits":{"memory":"70Mi"}`),
			"maximum memory usage per Container is 40Mi, but limit is 70Mi"},
		{"less memory than there was, but too much", "pod", resize(`"limits":{"memory":"45Mi"}`),
			"maximum memory usage per Container is 40Mi, but limit is 45Mi"},
		{"too much processor", "pod", resize(`"limits":{"cpu":"200m"}`),
			"maximum cpu usage per Container is 100m, but limit is 200m"},
		{"too much processor for the pod", "pod", resize(`"limits":{"cpu":"90m"}`),
			"maximum cpu usage per Pod is 80m, but limit is 90m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var err error
			options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
			if tc.what == "claim" {
				_, err = core.PersistentVolumeClaims("default").Patch(t.Context(), "c", types.MergePatchType,
					[]byte(tc.patch), options)
			} else {
				_, err = core.Pods("default").Patch(t.Context(), "p", types.StrategicMergePatchType,
					[]byte(tc.patch), options, "resize")
			}
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("error %v, want %q", err, tc.refused)
			}
		})
	}
}

// TestLimitRatio checks that the ratio of limit to request is compared exactly. A limit that equals
// the maximum ratio must be allowed, even with numbers that floating point would round, and with
// huge numbers (kubernetes/kubernetes#141348).
func TestLimitRatio(t *testing.T) {
	s := pluginServer(t)
	core := s.Client.CoreV1()
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: list("cpu", "9", "memory", "1.2")},
		}}}
	if _, err := core.LimitRanges("default").Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, request, limit corev1.ResourceList) error {
		_, err := core.Pods("default").Create(ctx, pod("p", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: request, Limits: limit}
		}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, "limit range in force", func(ctx context.Context) bool {
		return apierrors.IsForbidden(create(ctx, list("cpu", "1", "memory", "1"), list("cpu", "10", "memory", "1")))
	})
	for _, tc := range []struct {
		cpu, cpuLimit, memory, memoryLimit string
		allowed                            bool
	}{
		{"150m", "1350m", "1Gi", "1Gi", true},
		{"150m", "1351m", "1Gi", "1Gi", false},
		{"1", "1", "30", "36", true},
		{"1", "1", "30", "36001m", false},
		{"1", "1", "9223372036854775807", "9223372036854775807", true},
		{"1", "9000000000000000", "1", "1", false},
	} {
		err := create(t.Context(), list("cpu", tc.cpu, "memory", tc.memory),
			list("cpu", tc.cpuLimit, "memory", tc.memoryLimit))
		if tc.allowed && err != nil || !tc.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// list returns a ResourceList from alternating names and quantities.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func resize(resources string) string {
	return `{"spec":{"containers":[{"name":"c","resources":{` + resources + `}}]}}`
}
