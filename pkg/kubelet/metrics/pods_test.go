// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

func TestSandboxes(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.NewPods(r)
	no, yes := false, true
	m.Sandbox(&v1.Pod{}, "")(time.Second, nil)
	m.Sandbox(&v1.Pod{Spec: v1.PodSpec{HostUsers: &yes}}, "kata")(time.Second, errors.New("no room"))
	m.Sandbox(&v1.Pod{Spec: v1.PodSpec{HostUsers: &no}}, "")(time.Second, nil)
	m.Sandbox(&v1.Pod{Spec: v1.PodSpec{HostUsers: &no}}, "")(time.Second, errors.New("cannot be"))
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		"kubelet_started_pods_total": 4, "kubelet_started_pods_errors_total": 2,
		"kubelet_started_user_namespaced_pods_total": 2, "kubelet_started_user_namespaced_pods_errors_total": 1,
		`kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""}`:   3,
		`kubelet_run_podsandbox_duration_seconds_sum{runtime_handler="kata"}`: 1,
		`kubelet_run_podsandbox_errors_total{runtime_handler=""}`:             1,
		`kubelet_run_podsandbox_errors_total{runtime_handler="kata"}`:         1,
	})
}

// run returns the status of a container. The argument now is the ID of its newest run, if that has
// terminated. The argument before is the ID of the terminated run before it.
func run(name, now, before string, code int32) v1.ContainerStatus {
	over := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: "Error"}}
	}
	s := v1.ContainerStatus{Name: name}
	if s.State = over(now); now == "" {
		s.State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	}
	if before != "" {
		s.LastTerminationState = over(before)
	}
	return s
}

// TestEnded checks that each run is counted once, even if the kubelet notices its end only after
// the next run has started or terminated.
func TestEnded(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.NewPods(r)
	statuses := []v1.PodStatus{
		{},
		{ContainerStatuses: []v1.ContainerStatus{run("a", "", "", 139)}},
		{ContainerStatuses: []v1.ContainerStatus{run("a", "1", "", 139)}},
		{ContainerStatuses: []v1.ContainerStatus{run("a", "1", "", 139)}}, // the status is unchanged
		{ContainerStatuses: []v1.ContainerStatus{run("a", "", "1", 139)}}, // the container runs again
		// Run 2 terminated and the next run started between two statuses.
		{ContainerStatuses: []v1.ContainerStatus{run("a", "", "2", 139)}},
		// Runs 3 and 4 terminated between two statuses.
		{ContainerStatuses: []v1.ContainerStatus{run("a", "4", "3", 139)}},
		// An init container has terminated too.
		{ContainerStatuses: []v1.ContainerStatus{run("a", "4", "3", 139)},
			InitContainerStatuses: []v1.ContainerStatus{run("i", "5", "", 0)}},
		{ContainerStatuses: []v1.ContainerStatus{run("a", "4", "3", 139)},
			EphemeralContainerStatuses: []v1.ContainerStatus{run("e", "6", "", 1)}},
	}
	for i := 1; i < len(statuses); i++ {
		m.Ended(&statuses[i-1], &statuses[i])
	}
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		`kubelet_terminated_containers_total{container_type="container",exit_code="139",reason="Error"}`:         4,
		`kubelet_terminated_containers_total{container_type="init_container",exit_code="0",reason="Error"}`:      1,
		`kubelet_terminated_containers_total{container_type="ephemeral_container",exit_code="1",reason="Error"}`: 1,
	})
}

func TestImageVolumes(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.NewPods(r)
	m.ImageVolumes(0, 0, "out of memory")
	m.ImageVolumes(2, 3, "")
	m.ImageVolumes(1, 2, "ImageVolumeMountFailed: no such directory")
	m.ImageVolumes(1, 1, "out of memory") // an error that is not about mounting the image
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		"kubelet_image_volume_requested_total": 4, "kubelet_image_volume_mounted_succeed_total": 3,
		"kubelet_image_volume_mounted_errors_total": 2,
	})
}

// TestRejectionsAreFew checks that the label has only Kubernetes' values, whatever resources the
// pods request.
func TestRejectionsAreFew(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.NewPods(r)
	for _, reason := range []string{"OutOfcpu", "OutOfexample.com/a", "OutOfexample.com/b", "NodeAffinity",
		"NodePorts", "Evicted"} {
		m.Rejected(reason)
	}
	got := metricstest.Scrape(t, r)
	metricstest.Expect(t, got, map[string]float64{
		`kubelet_admission_rejections_total{reason="OutOfcpu"}`:               1,
		`kubelet_admission_rejections_total{reason="OutOfExtendedResources"}`: 2,
		`kubelet_admission_rejections_total{reason="Other"}`:                  2,
		`kubelet_admission_rejections_total{reason="Evicted"}`:                1,
		`kubelet_admission_rejections_total{reason="NodePorts"}`:              -1,
		`kubelet_restarted_pods_total{static=""}`:                             0,
		`kubelet_restarted_pods_total{static="true"}`:                         0,
	})
}

func TestState(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(&metrics.State{
		Node: "n1", CgroupVersion: 2,
		Census: func() metrics.Census {
			return metrics.Census{Sandboxes: 3,
				Containers: map[string]int{metrics.IsRunning: 4, metrics.IsExited: 1}, Workers: map[metrics.Worker]int{
					{Lifecycle: metrics.Syncing, Config: metrics.Desired}:               2,
					{Lifecycle: metrics.Syncing, Config: metrics.Desired, Static: true}: 1,
					{Lifecycle: metrics.Terminating, Config: metrics.RuntimeOnly}:       1,
				}}
		},
		Counts: func() metrics.Counts {
			return metrics.Counts{Desired: map[bool]int{false: 5, true: 1},
				Active: map[bool]int{false: 2, true: 1}, Mirrors: 1, Ephemeral: 2}
		},
	})
	got := metricstest.Scrape(t, r)
	metricstest.Expect(t, got, map[string]float64{
		`kubelet_node_name{node="n1"}`: 1, "kubelet_cgroup_version": 2, "kubelet_running_pods": 3,
		"kubelet_mirror_pods": 1, "kubelet_managed_ephemeral_containers": 2,
		`kubelet_running_containers{container_state="running"}`: 4,
		`kubelet_running_containers{container_state="created"}`: 0,
		`kubelet_desired_pods{static=""}`:                       5, `kubelet_desired_pods{static="true"}`: 1,
		`kubelet_active_pods{static=""}`: 2, `kubelet_active_pods{static="true"}`: 1,
		`kubelet_working_pods{config="desired",lifecycle="sync",static=""}`:                    2,
		`kubelet_working_pods{config="desired",lifecycle="sync",static="true"}`:                1,
		`kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"}`: 1,
		`kubelet_working_pods{config="orphan",lifecycle="terminated",static=""}`:               0,
	})
	if len(got) != 1+1+1+4+2+2+1+15+1 {
		t.Errorf("%d series: %v", len(got), got)
	}
}
