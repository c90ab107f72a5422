// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Values of the label that contains the state of a container.
const (
	IsCreated = "created"
	IsRunning = "running"
	IsExited  = "exited"
	IsUnknown = "unknown"
)

// Values of the labels lifecycle and config of pod workers. The lifecycle says whether the worker
// runs its pod, ends it, or has ended it. The config says where the kubelet knows the pod from.
// Desired: the API or a source of static pods has the pod. Orphan: one of them had it. RuntimeOnly:
// this kubelet process has found the pod only in the runtime.
const (
	Syncing      = "sync"
	Terminating  = "terminating"
	IsTerminated = "terminated"

	Desired     = "desired"
	Orphan      = "orphan"
	RuntimeOnly = "runtime_only"
)

// Worker is the set of label values of a worker.
type Worker struct {
	Lifecycle, Config string
	Static            bool
}

// Census counts pods and containers by their state.
type Census struct {
	// Sandboxes is the number of pods with a ready sandbox.
	Sandboxes int
	// Containers counts all containers in the runtime by state.
	Containers map[string]int
	Workers    map[Worker]int
}

// Counts counts the pods that the kubelet was given.
type Counts struct {
	// Desired counts the pods that are assigned to the node. Active counts those of them that have
	// not ended. The keys say whether the pods are static.
	Desired, Active map[bool]int
	Mirrors         int
	Ephemeral       int // number of ephemeral containers of desired pods
}

// State computes its metrics on each scrape.
type State struct {
	// Node is the node's name. CgroupVersion is 1 or 2.
	Node          string
	CgroupVersion int
	Census        func() Census
	Counts        func() Counts
}

var (
	nodeName      = desc("kubelet_node_name", "[ALPHA] Always 1; the label is the name of the node.", "node")
	cgroupVersion = desc("kubelet_cgroup_version", "[ALPHA] Version of the cgroup hierarchy of pods: 1 or 2.")
	runningPods   = desc("kubelet_running_pods", "[ALPHA] Number of pods with a ready sandbox.")
	containersBy  = desc("kubelet_running_containers", "[ALPHA] Number of containers in the runtime, by state.",
		"container_state")
	desiredPods = desc("kubelet_desired_pods", "[ALPHA] Number of pods that are assigned to the node.", "static")
	activePods  = desc("kubelet_active_pods",
		"[ALPHA] Number of pods that have not ended and so count for admission.", "static")
	mirrorPods  = desc("kubelet_mirror_pods", "[ALPHA] Number of mirror pods.")
	workingPods = desc("kubelet_working_pods", "[ALPHA] Number of pods with a worker, by lifecycle, by "+
		"origin (API or file, deleted, or only in the runtime) and by whether they are static.",
		"lifecycle", "config", "static")
	ephemeral = desc("kubelet_managed_ephemeral_containers",
		"[ALPHA] Number of ephemeral containers of the pods that are assigned to the node.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (*State) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodeName, cgroupVersion, runningPods, containersBy, desiredPods,
		activePods, mirrorPods, workingPods, ephemeral} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It exports 0 for states that no pod or container has.
func (s *State) Collect(ch chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	tell(nodeName, 1, s.Node)
	tell(cgroupVersion, s.CgroupVersion)
	counts := s.Counts()
	for _, is := range []bool{false, true} {
		tell(desiredPods, counts.Desired[is], static(is))
		tell(activePods, counts.Active[is], static(is))
	}
	tell(mirrorPods, counts.Mirrors)
	tell(ephemeral, counts.Ephemeral)
	census := s.Census()
	tell(runningPods, census.Sandboxes)
	for _, state := range []string{IsCreated, IsRunning, IsExited, IsUnknown} {
		tell(containersBy, census.Containers[state], state)
	}
	for _, lifecycle := range []string{Syncing, Terminating, IsTerminated} {
		for _, is := range []bool{false, true} {
			tell(workingPods, census.Workers[Worker{lifecycle, Desired, is}], lifecycle, Desired, static(is))
			tell(workingPods, census.Workers[Worker{lifecycle, Orphan, is}], lifecycle, Orphan, static(is))
		}
		// For a pod that exists only in the runtime, it is unknown whether it was static.
		tell(workingPods, census.Workers[Worker{lifecycle, RuntimeOnly, false}], lifecycle, RuntimeOnly, "unknown")
	}
}
