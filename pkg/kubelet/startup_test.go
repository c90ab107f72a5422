// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// discard is a podPool that runs no pods.
type discard struct{}

func (discard) Set(*v1.Pod)      {}
func (discard) Remove(types.UID) {}

// TestStartup checks which times of a pod's start the metrics contain. Each pod is created at 1000 s
// and seen 1 s later. Its image is pulled in 5 s, its init container runs for 7 s, and the API shows
// that its containers run at 1030 s.
func TestStartup(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	for name, tt := range map[string]struct {
		first, later func(*v1.Pod) // change the pod when it is first seen, and at all later times
		total, sli   float64       // 0 if the metric does not contain the pod
	}{
		"measured": {total: 30, sli: 18},
		"with volumes of API objects": {first: func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}
		}, total: 30, sli: 18},
		"with persistent data": {first: func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
		}, total: 30},
		"started by an earlier process": {first: func(p *v1.Pod) { p.Status.StartTime = new(at(1000)) }},
		"waited for a node": {first: func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}
		}, later: func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionTrue }},
		"ended at once": {later: func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }},
		"never runs": {later: func(p *v1.Pod) {
			p.Status.ContainerStatuses[1].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(at(1001).Time)
			s := newStartup(prometheus.NewRegistry(), clk)
			api := withoutMirrors{discard{}, func() {}, s}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: at(1000)}}
			change := func(f func(*v1.Pod)) {
				old := pod
				pod = old.DeepCopy()
				if f != nil {
					f(pod)
				}
				api.change(old, pod)
			}
			change(tt.first)
			s.pulled("u", 5*time.Second)
			clk.SetTime(at(1030).Time)
			pod.Status.StartTime = new(at(1001))
			pod.Status.InitContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
				Terminated: &v1.ContainerStateTerminated{StartedAt: at(1010), FinishedAt: at(1017)}}}}
			running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(1029)}}
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: running}, {State: running}}
			change(tt.later)
			clk.Step(time.Hour)
			change(nil) // a later change must not be measured
			for metric, want := range map[prometheus.Histogram]float64{s.total: tt.total, s.sli: tt.sli} {
				got := &dto.Metric{}
				if err := metric.Write(got); err != nil {
					t.Fatal(err)
				}
				h := got.GetHistogram()
				if h.GetSampleSum() != want || h.GetSampleCount() > 0 != (want > 0) || h.GetSampleCount() > 1 {
					t.Errorf("got %v, want %v", h, want)
				}
			}
			api.change(pod, nil)
			if len(s.pods) > 0 {
				t.Errorf("after the pod was deleted, its state remains: %v", s.pods)
			}
		})
	}
}
