// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRate(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &rate{}
	for i, step := range []struct {
		after time.Duration
		total uint64
		want  int64 // growth per second; -1 if the method observe must return nil
	}{
		{0, 100, -1},
		{500 * time.Millisecond, 900, -1}, // the first count is less than minRate old
		{1500 * time.Millisecond, 4100, 2000},
		{8 * time.Second, 4100, 400},
		{4 * time.Second, 9000, 635}, // the rate is computed since the first count
		{5 * time.Second, 9000, 468}, // still since the first count, because the second count is only 9 s old
		{1 * time.Second, 9000, 490}, // since the second count, which is now 10 s old
		{10 * time.Second, 100, -1},  // the counter was reset
		{10 * time.Second, 100, 0},
		{-time.Hour, 200, -1}, // the clock was set back
		{2 * time.Second, 400, 100},
		{time.Hour, 500, -1}, // the last count is too old
		{2 * time.Second, 700, 100},
	} {
		now = now.Add(step.after)
		got := int64(-1)
		if p := r.observe(now, step.total); p != nil {
			got = int64(*p)
		}
		if got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
		if len(r.counts) > int(rateWindow/countsApart)+2 {
			t.Errorf("step %d: %d counts are kept", i, len(r.counts))
		}
	}
}

// TestRatesAreForgotten checks that counters that are no longer observed are dropped.
func TestRatesAreForgotten(t *testing.T) {
	var r rates
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 100 {
		now = now.Add(time.Minute)
		r.observe(fmt.Sprint(i), now, 1)
	}
	if len(r.byName) > 4 {
		t.Errorf("%d are known, want the last few", len(r.byName))
	}
}

// TestCatchingUp checks the rate of a container that was blocked and then catches up on its work.
// Over the last second, the runtime reports a rate of up to 600 millicores, but over 10 s the rate
// stays at about 100 millicores.
func TestCatchingUp(t *testing.T) {
	var r rates
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var used uint64
	for i, second := range []uint64{100, 100, 0, 0, 0, 0, 0, 600, 100, 100, 100, 100, 0, 0, 200} {
		now, used = now.Add(time.Second), used+second*1e6
		cpu := &runtimeapi.CpuUsage{
			Timestamp: now.UnixNano(), UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: used},
			UsageNanoCores: &runtimeapi.UInt64Value{Value: second * 1e6},
		}
		item := &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: "p"},
			Linux: &runtimeapi.LinuxPodSandboxStats{Cpu: cpu, Containers: []*runtimeapi.ContainerStats{
				{Attributes: &runtimeapi.ContainerAttributes{Id: "c"}, Cpu: cpu},
			}},
		}
		pod := podStats(item)
		r.pod(item, &pod)
		for _, got := range []*uint64{pod.CPU.UsageNanoCores, pod.Containers[0].CPU.UsageNanoCores} {
			if *got > 110e6 {
				t.Errorf("after %d s: %d millicores, want about 100", i, *got/1e6)
			}
		}
	}
}
