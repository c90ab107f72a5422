// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// window is the approximate period over which a kubelet measures CPU usage.
var window = metav1.Duration{Duration: 10 * time.Second}

// usage is the CPU and memory usage at a time.
type usage struct {
	at   metav1.Time
	list corev1.ResourceList
}

// usageOf converts the statistics of a kubelet. It returns false if CPU or memory is missing.
func usageOf(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) (usage, bool) {
	if cpu == nil || cpu.UsageNanoCores == nil || memory == nil || memory.WorkingSetBytes == nil {
		return usage{}, false
	}
	return usage{at: cpu.Time, list: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(*cpu.UsageNanoCores), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(*memory.WorkingSetBytes), resource.BinarySI),
	}}, true
}

// metadata returns the metadata for the metrics of an object with the given metadata.
func (h *handler) metadata(of *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: of.Name, Namespace: of.Namespace, Labels: of.Labels,
		CreationTimestamp: metav1.NewTime(h.clock.Now())}
}

// podMetrics returns the metrics of running pods. It omits a pod if the usage of any of its
// containers is missing.
func (h *handler) podMetrics(ctx context.Context, pods []corev1.Pod) []v1beta1.PodMetrics {
	nodes := map[string]bool{}
	for i := range pods {
		if p := &pods[i]; p.Status.Phase == corev1.PodRunning && p.Spec.NodeName != "" {
			nodes[p.Spec.NodeName] = true
		}
	}
	stats := map[string]*statsapi.PodStats{} // usage by UID of the pod
	for _, summary := range h.all(ctx, slices.Collect(maps.Keys(nodes))) {
		for i := range summary.Pods {
			stats[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
		}
	}
	out := make([]v1beta1.PodMetrics, 0, len(pods))
	for i := range pods {
		if m, ok := podMetrics(&pods[i], stats[string(pods[i].UID)]); ok {
			m.ObjectMeta = h.metadata(&pods[i].ObjectMeta)
			out = append(out, m)
		}
	}
	return out
}

func podMetrics(pod *corev1.Pod, stats *statsapi.PodStats) (v1beta1.PodMetrics, bool) {
	out := v1beta1.PodMetrics{Window: window}
	if pod.Status.Phase != corev1.PodRunning || stats == nil {
		return out, false
	}
	for i := range stats.Containers {
		c := &stats.Containers[i]
		u, ok := usageOf(c.CPU, c.Memory)
		if !ok {
			return out, false
		}
		// The timestamp of a pod is the time of its oldest value.
		if out.Timestamp.IsZero() || u.at.Before(&out.Timestamp) {
			out.Timestamp = u.at
		}
		out.Containers = append(out.Containers, v1beta1.ContainerMetrics{Name: c.Name, Usage: u.list})
	}
	return out, len(out.Containers) > 0
}
