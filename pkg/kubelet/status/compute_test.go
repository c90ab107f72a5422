// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// TestVerdict checks that the condition DisruptionTarget is set if the node ends a pod, but not if
// the pod exceeded its own limit. It also checks that the phase is Failed once all containers have
// ended.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		disruption      bool
		condition, told string
	}{{true, "", "why"}, {true, "for whom", "for whom"}, {false, "for whom", ""}} {
		in := status.Input{
			Pod: &v1.Pod{}, Seen: &cri.Pod{}, Now: time.Unix(1, 0), Ending: true,
			Verdict: &status.Verdict{Phase: v1.PodFailed, Reason: "Evicted", Message: "why",
				Disruption: c.disruption, Condition: c.condition},
		}
		for _, in.Ended = range []bool{false, true} {
			s := status.Compute(in)
			if failed := s.Phase == v1.PodFailed; failed != in.Ended || s.Reason != "Evicted" || s.Message != "why" {
				t.Errorf("ended %t: phase %s, reason %q, message %q", in.Ended, s.Phase, s.Reason, s.Message)
			}
			told := ""
			for _, condition := range s.Conditions {
				if condition.Type == v1.DisruptionTarget && condition.Status == v1.ConditionTrue &&
					condition.Reason == "TerminationByKubelet" {
					told = condition.Message
				}
			}
			if told != c.told {
				t.Errorf("ended %t: disruption %q, want %q", in.Ended, told, c.told)
			}
		}
	}
}

// TestAllocated checks that a pod's allocated resources are the granted pod-level resources, or the
// sum of its containers' resources if it has no pod-level resources.
func TestAllocated(t *testing.T) {
	requests := func(cpu string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
	}
	whole := requests("2")
	for name, c := range map[string]struct {
		spec v1.PodSpec
		want string
	}{
		"containers": {v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: requests("100m")},
			{Name: "b", Resources: requests("200m")}}}, "300m"},
		"init container": {v1.PodSpec{InitContainers: []v1.Container{{Name: "i", Resources: requests("1")}},
			Containers: []v1.Container{{Name: "a", Resources: requests("100m")}}}, "1"},
		"whole pod": {v1.PodSpec{Resources: &whole,
			Containers: []v1.Container{{Name: "a", Resources: requests("100m")}}}, "2"},
		"nothing": {v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}, ""},
	} {
		s := status.Compute(status.Input{Pod: &v1.Pod{Spec: c.spec}, Seen: &cri.Pod{}, Now: time.Unix(1, 0)})
		got, there := s.AllocatedResources[v1.ResourceCPU]
		if there != (c.want != "") || there && got.String() != c.want || !there && s.AllocatedResources != nil {
			t.Errorf("%s: %v, want %q", name, s.AllocatedResources, c.want)
		}
	}
}

// TestReadyToStart checks the condition PodReadyToStartContainers for each state of a pod's sandboxes.
func TestReadyToStart(t *testing.T) {
	old := cri.Sandbox{ID: "old"}
	ready := cri.Sandbox{ID: "new", Ready: true, IPs: []string{"192.0.2.7"}}
	onHost := cri.Sandbox{ID: "host", Ready: true, HostNetwork: true}
	for name, c := range map[string]struct {
		hostNetwork bool
		sandboxes   []cri.Sandbox
		want        string // the message; "" if the condition is true
	}{
		"none":                {false, nil, "no pod sandbox exists"},
		"ready":               {false, []cri.Sandbox{ready}, ""},
		"ready, old stopped":  {false, []cri.Sandbox{ready, old}, ""},
		"ready, host network": {true, []cri.Sandbox{onHost}, ""},
		"two ready": {false, []cri.Sandbox{ready, ready},
			"multiple pod sandboxes are ready and need to be reconciled"},
		"stopped":     {false, []cri.Sandbox{old}, "pod sandbox is not ready"},
		"only old":    {false, []cri.Sandbox{old, ready}, "pod sandbox is not ready"},
		"other mode":  {true, []cri.Sandbox{ready}, "network namespace mode changed and sandbox needs to be recreated"},
		"no address":  {false, []cri.Sandbox{{Ready: true}}, "pod sandbox has no IP address"},
		"host's mode": {false, []cri.Sandbox{onHost}, "network namespace mode changed and sandbox needs to be recreated"},
	} {
		s := status.Compute(status.Input{Pod: &v1.Pod{Spec: v1.PodSpec{HostNetwork: c.hostNetwork}},
			Seen: &cri.Pod{Sandboxes: c.sandboxes}, Now: time.Unix(1, 0)})
		i := slices.IndexFunc(s.Conditions,
			func(o v1.PodCondition) bool { return o.Type == v1.PodReadyToStartContainers })
		got := s.Conditions[i]
		want := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue,
			LastTransitionTime: got.LastTransitionTime}
		if c.want != "" {
			want.Status, want.Reason, want.Message = v1.ConditionFalse, "PodSandboxNotReady", c.want
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}
