// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/table"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/keelson/pkg/api"
)

// runningPod returns a pod with two running containers.
func runningPod() *corev1.Pod {
	began := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-7d4b9c6f5d-000017", Namespace: "shop",
			UID: types.UID("5f9c4ab0"), CreationTimestamp: began},
		Spec:   corev1.PodSpec{NodeName: "node-17"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.17", PodIPs: []corev1.PodIP{{IP: "10.0.0.17"}}},
	}
	for i := range 2 {
		name := fmt.Sprint("container-", i)
		pod.Spec.Containers = append(pod.Spec.Containers,
			corev1.Container{Name: name, Image: "registry.example.com/production/web:2.14.3"})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Image: "registry.example.com/production/web:2.14.3",
			ImageID:     "registry.example.com/production/web@sha256:5f9c4ab08cac7457",
			ContainerID: "containerd://5f9c4ab08cac7457e9111a30e4664920607ea2c115a1433d7be98e97e64244ca",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized,
		corev1.ContainersReady, corev1.PodReady, corev1.PodReadyToStartContainers} {
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: began})
	}
	return pod
}

// BenchmarkPodRow measures how long it takes to compute a pod's row in a Table response from the
// stored pod.
func BenchmarkPodRow(b *testing.B) {
	all := api.Rows(api.Deps{})
	row := all[slices.IndexFunc(all, func(r *resource.Row) bool { return r.Group == "" && r.Resource == "pods" })]
	data, err := registry.Codec(row).Encode(runningPod())
	if err != nil {
		b.Fatal(err)
	}
	read := registry.Parts(row, transcode.NewTypes(), row.CellPaths...)()
	ages := table.NewAges("0123456789abcdef")
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		obj, ok := read(data)
		if !ok {
			b.Fatal("the pod cannot be read in part")
		}
		if line, err = table.AppendLine(line[:0], ages.LineOf(row, obj)); err != nil {
			b.Fatal(err)
		}
	}
}
