// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// Values of the label that contains the kind of a container.
const (
	Container          = "container"
	InitContainer      = "init_container"
	EphemeralContainer = "ephemeral_container"
)

// Values of the label that contains the operation of a pod worker: syncing a pod (by its cause),
// stopping its containers, and cleaning up after it.
const (
	Create     = "create"
	Update     = "update"
	Sync       = "sync"
	Kill       = "kill"
	Terminated = "terminated"
)

// Pods holds the metrics about pods and their containers. It is safe for concurrent use.
type Pods struct {
	// Metrics about sandboxes.
	started, failed           prometheus.Counter
	namespaced, notNamespaced prometheus.Counter
	sandboxes                 *prometheus.HistogramVec
	sandboxErrors             *prometheus.CounterVec

	// Metrics about containers and their image volumes.
	containers, containerErrors, terminated *prometheus.CounterVec
	requested, mounted, unmounted           prometheus.Counter

	// Metrics about pods and their workers.
	restarted  *prometheus.CounterVec
	orphaned   prometheus.Counter
	rejected   *prometheus.CounterVec
	preempted  *prometheus.CounterVec
	operations *prometheus.HistogramVec
	first      prometheus.Histogram
	size       prometheus.Histogram
	written    prometheus.Histogram

	// Metrics about lifecycle handlers.
	fellBack, sleepsCut prometheus.Counter
}

// NewPods registers the metrics; r may be nil.
func NewPods(r prometheus.Registerer) *Pods {
	m := &Pods{
		sandboxes: histogram("kubelet_run_podsandbox_duration_seconds",
			"[ALPHA] Duration of creating a sandbox in seconds, by the handler of its RuntimeClass.", durations,
			"runtime_handler"),
		sandboxErrors: counter("kubelet_run_podsandbox_errors_total",
			"[ALPHA] Number of sandboxes that the runtime failed to create, by the handler of their RuntimeClass.",
			"runtime_handler"),
		containers: counter("kubelet_started_containers_total",
			"[ALPHA] Number of attempts to start a container.", "container_type"),
		containerErrors: counter("kubelet_started_containers_errors_total",
			"[ALPHA] Number of failed attempts to start a container, by the reason in its status.", "container_type", "code"),
		terminated: counter("kubelet_terminated_containers_total",
			"[ALPHA] Number of terminated containers, by exit code and reason.", "container_type", "exit_code", "reason"),
		restarted: counter("kubelet_restarted_pods_total",
			"[ALPHA] Number of pods that were removed and added again with the same UID while the kubelet "+
				"was running, such as static pods.", "static"),
		rejected: counter("kubelet_admission_rejections_total",
			"[ALPHA] Number of pods that the node rejected, by reason.", "reason"),
		preempted: counter("kubelet_preemptions",
			"[ALPHA] Number of pods that were preempted for a critical pod, by the first missing resource.",
			"preemption_signal"),
		operations: histogram("kubelet_pod_worker_duration_seconds",
			"[ALPHA] Duration of operations on a pod in seconds: syncing it (create, update, sync), "+
				"stopping its containers (kill) and releasing its resources (terminated).",
			durations, "operation_type"),
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m.started = one("kubelet_started_pods_total", "[ALPHA] Number of attempts to create the sandbox of a pod.")
	m.failed = one("kubelet_started_pods_errors_total",
		"[ALPHA] Number of failed attempts to create the sandbox of a pod.")
	m.namespaced = one("kubelet_started_user_namespaced_pods_total",
		"[ALPHA] Number of attempts to create the sandbox of a pod with a user namespace of its own.")
	m.notNamespaced = one("kubelet_started_user_namespaced_pods_errors_total",
		"[ALPHA] Number of failed attempts to start a pod with a user namespace of its own: creating its "+
			"sandbox or starting a first container failed.")
	m.requested = one("kubelet_image_volume_requested_total",
		"[BETA] Number of images that containers requested as volumes.")
	m.mounted = one("kubelet_image_volume_mounted_succeed_total", "[BETA] Number of successful mounts of image volumes.")
	m.unmounted = one("kubelet_image_volume_mounted_errors_total", "[BETA] Number of failed mounts of image volumes.")
	m.orphaned = one("kubelet_orphaned_runtime_pods_total",
		"[ALPHA] Number of pods that existed only in the runtime and were ended.")
	m.fellBack = one("kubelet_lifecycle_handler_http_fallbacks_total",
		"[ALPHA] Number of lifecycle handlers that failed over HTTPS and succeeded over HTTP.")
	m.sleepsCut = one("kubelet_sleep_action_terminated_early_total",
		"[ALPHA] Number of lifecycle handlers whose sleep was cut short.")
	span := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m.first = span("kubelet_pod_worker_start_duration_seconds",
		"[ALPHA] Time from when the kubelet first saw a pod to its first sync, in seconds.", durations)
	m.size = span("kubelet_containers_per_pod_count",
		"[ALPHA] Number of containers per pod, without init containers.", prometheus.ExponentialBuckets(1, 2, 5))
	m.written = span("kubelet_pod_status_sync_duration_seconds",
		"[ALPHA] Time from the first change of a pod's status that the API server does not have until it "+
			"has the newest status, in seconds.",
		[]float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60})
	for _, is := range []bool{false, true} {
		m.restarted.WithLabelValues(static(is)) // exports the metric with the value 0 before the first restart
	}
	register(r, m.started, m.failed, m.namespaced, m.notNamespaced, m.sandboxes, m.sandboxErrors, m.containers,
		m.containerErrors, m.terminated,
		m.requested, m.mounted, m.unmounted, m.restarted, m.orphaned, m.rejected, m.preempted, m.operations,
		m.first, m.size, m.written, m.fellBack, m.sleepsCut)
	return m
}

// Sandbox counts an attempt to create the sandbox of a pod. The caller calls the returned function
// when the attempt has ended.
func (m *Pods) Sandbox(pod *v1.Pod, handler string) (over func(took time.Duration, err error)) {
	m.started.Inc()
	if ownUsers(pod) {
		m.namespaced.Inc()
	}
	return func(took time.Duration, err error) {
		m.sandboxes.WithLabelValues(handler).Observe(took.Seconds())
		if err == nil {
			return
		}
		m.sandboxErrors.WithLabelValues(handler).Inc()
		m.failed.Inc()
		m.SandboxWithoutContainers(pod)
	}
}

// SandboxWithoutContainers counts a pod whose sandbox was created, but whose first containers could
// not all be started. Problems with a user namespace often appear only then, so it counts only pods
// that have one. The method Sandbox calls it too, for pods whose sandbox could not be created.
func (m *Pods) SandboxWithoutContainers(pod *v1.Pod) {
	if ownUsers(pod) {
		m.notNamespaced.Inc()
	}
}

func ownUsers(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Start counts an attempt to start a container.
func (m *Pods) Start(kind string) { m.containers.WithLabelValues(kind).Inc() }

// StartFailed counts a failed attempt to start a container, with the reason that the container's
// status shows.
func (m *Pods) StartFailed(kind, reason string) {
	m.containerErrors.WithLabelValues(kind, reason).Inc()
}

// refusedMount begins the runtime's error message if it cannot mount an image.
const refusedMount = "ImageVolumeMountFailed"

// ImageVolumes counts the images that a container mounts and the mounts themselves. refusal is the
// runtime's error message if it failed to create the container, or "".
func (m *Pods) ImageVolumes(images, mounts int, refusal string) {
	m.requested.Add(float64(images))
	switch {
	case refusal == "":
		m.mounted.Add(float64(mounts))
	case strings.HasPrefix(refusal, refusedMount):
		m.unmounted.Add(float64(mounts))
	}
}

// Ended counts the runs of containers that are terminated in the newer of the two statuses but not
// in the older one.
func (m *Pods) Ended(before, after *v1.PodStatus) {
	for _, list := range []struct {
		kind          string
		before, after []v1.ContainerStatus
	}{
		{InitContainer, before.InitContainerStatuses, after.InitContainerStatuses},
		{Container, before.ContainerStatuses, after.ContainerStatuses},
		{EphemeralContainer, before.EphemeralContainerStatuses, after.EphemeralContainerStatuses},
	} {
		for i := range list.after {
			known := terminatedStates(list.before, list.after[i].Name)
			for _, t := range terminatedStates(list.after, list.after[i].Name) {
				if !slices.ContainsFunc(known, func(k *v1.ContainerStateTerminated) bool {
					return k.ContainerID == t.ContainerID
				}) {
					m.terminated.WithLabelValues(list.kind, strconv.Itoa(int(t.ExitCode)), t.Reason).Inc()
				}
			}
		}
	}
}

// terminatedStates returns the terminated runs of a container that a status contains: the newest
// run and the one before it.
func terminatedStates(list []v1.ContainerStatus, name string) (out []*v1.ContainerStateTerminated) {
	for i := range list {
		if list[i].Name != name {
			continue
		}
		for _, s := range []v1.ContainerState{list[i].State, list[i].LastTerminationState} {
			if t := s.Terminated; t != nil && (len(out) == 0 || out[0].ContainerID != t.ContainerID) {
				out = append(out, t)
			}
		}
	}
	return out
}

// Restarted counts a pod that was added again while the worker of the earlier pod was still
// running.
func (m *Pods) Restarted(isStatic bool) { m.restarted.WithLabelValues(static(isStatic)).Inc() }

// Orphaned counts a pod that the kubelet found only in the runtime.
func (m *Pods) Orphaned() { m.orphaned.Inc() }

// rejections are the reasons that the metric has as label values. Other reasons may contain the
// name of a resource, so they are counted as OutOfExtendedResources or Other.
var rejections = []string{
	"AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo",
	"InitContainerRestartPolicyForbidden",
	"SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError", "UnknownReason", "UnexpectedPredicateFailureType",
	"OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "PodLevelResourcesNotSupported",
	"PodFeatureUnsupported",
	"Evicted", "SysctlForbidden", "TopologyAffinityError", "NodeShutdown", "VolumeAttachmentLimitExceeded",
}

// Rejected counts a pod that the node did not admit.
func (m *Pods) Rejected(reason string) {
	switch {
	case slices.Contains(rejections, reason):
	case strings.HasPrefix(reason, "OutOf"):
		reason = "OutOfExtendedResources"
	default:
		reason = "Other"
	}
	m.rejected.WithLabelValues(reason).Inc()
}

// Preempted counts a pod that was ended to make room for another pod. resource is the resource that
// the other pod lacked, or "".
func (m *Pods) Preempted(resource string) { m.preempted.WithLabelValues(resource).Inc() }

// FellBack counts a lifecycle handler that failed over HTTPS and succeeded over HTTP.
func (m *Pods) FellBack() { m.fellBack.Inc() }

// SleepCut counts a lifecycle handler whose sleep was cut short.
func (m *Pods) SleepCut() { m.sleepsCut.Inc() }

// OperationDone records the duration of an operation of a pod worker.
func (m *Pods) OperationDone(operation string, took time.Duration) {
	m.operations.WithLabelValues(operation).Observe(took.Seconds())
}

// WorkerStarted records how long a new pod waited until its worker started.
func (m *Pods) WorkerStarted(waited time.Duration) { m.first.Observe(waited.Seconds()) }

// Admitted records the number of containers of an admitted pod.
func (m *Pods) Admitted(pod *v1.Pod) { m.size.Observe(float64(len(pod.Spec.Containers))) }

// StatusWritten records for how long the status in the API was older than the kubelet's.
func (m *Pods) StatusWritten(waited time.Duration) { m.written.Observe(waited.Seconds()) }
