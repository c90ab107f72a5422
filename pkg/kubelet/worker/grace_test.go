// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestGraceOfPod checks how the grace period of a pod that ends is chosen. The shortest of the
// periods set by the deletion, by the kubelet and earlier during the pod's end applies. If none of
// these is set, the period in the pod's spec applies.
func TestGraceOfPod(t *testing.T) {
	choices := []*int64{nil, new(int64(0)), new(int64(1)), new(int64(5)), new(int64(30)), new(int64(600))}
	for _, deletion := range choices {
		for _, override := range choices {
			for _, spec := range append([]*int64{new(int64(-3))}, choices...) {
				for _, before := range []time.Duration{0, time.Second, 20 * time.Second, 100 * time.Second} {
					l := observation{pod: &v1.Pod{}, grace: override}
					l.pod.DeletionGracePeriodSeconds, l.pod.Spec.TerminationGracePeriodSeconds = deletion, spec
					var given []time.Duration
					for _, s := range []*int64{deletion, override} {
						if s != nil {
							given = append(given, time.Duration(*s)*time.Second)
						}
					}
					if before > 0 {
						given = append(given, before)
					}
					want := defaultGrace
					switch {
					case len(given) > 0:
						want = slices.Min(given)
					case spec != nil:
						want = time.Duration(*spec) * time.Second
					}
					want = max(want, time.Second)
					if got := graceFor(l, before); got != want {
						t.Errorf("deletion %s, override %s, spec %s, before %v: %v, want %v",
							show(deletion), show(override), show(spec), before, got, want)
					}
				}
			}
		}
	}
}

// TestGraceOfContainer checks the grace period of a container that is stopped while its pod keeps
// running: that of the pod's deletion, or else of the failed probe, or else of the pod's spec.
func TestGraceOfContainer(t *testing.T) {
	for _, c := range []struct {
		deletion, spec, probe *int64
		want                  time.Duration
	}{
		{want: defaultGrace},
		{spec: new(int64(40)), want: 40 * time.Second},
		{spec: new(int64(0)), want: 0}, // with 0, the preStop handler is skipped
		{spec: new(int64(40)), probe: new(int64(5)), want: 5 * time.Second},
		{spec: new(int64(40)), probe: new(int64(90)), want: 90 * time.Second},
		{spec: new(int64(40)), probe: new(int64(0)), want: 0},
		{deletion: new(int64(7)), spec: new(int64(40)), probe: new(int64(5)), want: 7 * time.Second},
		{deletion: new(int64(7)), spec: new(int64(3)), want: 7 * time.Second},
	} {
		pod := &v1.Pod{}
		pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = c.deletion, c.spec
		if got := graceOne(pod, c.probe); got != c.want {
			t.Errorf("deletion %s, spec %s, probe %s: %v, want %v", show(c.deletion), show(c.spec), show(c.probe), got, c.want)
		}
	}
}

func show(n *int64) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}
