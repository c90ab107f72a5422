// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Values of the metrics label action, which says what a sync did.
const (
	// reconciling means that the sync could not create or delete pods, because the caches did not
	// show all earlier creations and deletions yet.
	reconciling = "reconciling"
	// tracking means that the sync only counted ended pods.
	tracking    = "tracking"
	podsCreated = "pods_created"
	podsDeleted = "pods_deleted"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts.
type metrics struct {
	duration                                             *prometheus.HistogramVec
	syncs, finished, podsFinished, policy, withFinalizer *prometheus.CounterVec
	finishedIndexes, podsMade, foreign                   *prometheus.CounterVec
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Subsystem: "job_controller", Name: name, Help: help}, labels)
	}
	return &metrics{
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "job_controller", Name: "job_sync_duration_seconds", Help: "[STABLE] The time it took to sync a job",
			Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
		}, []string{"completion_mode", "result", "action"}),
		syncs: counter("job_syncs_total", "[STABLE] The number of job syncs", "completion_mode", "result", "action"),
		finished: counter("jobs_finished_total", "[STABLE] The number of finished jobs", "completion_mode",
			"result", "reason"),
		podsFinished: counter("job_pods_finished_total",
			"[STABLE] The number of finished Pods that are fully tracked", "completion_mode", "result"),
		policy: counter("pod_failures_handled_by_failure_policy_total",
			"[BETA] The number of failed Pods handled by failure policy with\n"+
				"\t\t\trespect to the failure policy action applied based on the matched\n\t\t\trule. Possible "+
				"values of the action label correspond to the\n"+
				"\t\t\tpossible values for the failure policy rule action, which are:\n\t\t\t\"FailJob\", "+
				"\"Ignore\" and \"Count\".", "action"),
		withFinalizer: counter("terminated_pods_tracking_finalizer_total",
			"[BETA] The number of terminated pods (phase=Failed|Succeeded)\n"+
				"that have the finalizer batch.kubernetes.io/job-tracking\nThe event label can be \"add\" or \"delete\".", "event"),
		finishedIndexes: counter("job_finished_indexes_total",
			"[ALPHA] The number of finished indexes. Possible values for the\n\t\t\tstatus label are: "+
				"\"succeeded\", \"failed\". Possible values for the\n\t\t\tbackoffLimit label are: "+
				"\"perIndex\" and \"global\"", "status", "backoffLimit"),
		podsMade: counter("job_pods_creation_total",
			"[ALPHA] The number of Pods created by the Job controller labelled with a reason for the Pod creation.\n"+
				"This metric also distinguishes between Pods created using different PodReplacementPolicy settings.\n"+
				"Possible values of the \"reason\" label are:\n\"new\", \"recreate_terminating_or_failed\", "+
				"\"recreate_failed\".\nPossible values of the \"status\" label are:\n\"succeeded\", \"failed\".",
			"reason", "status"),
		foreign: counter("jobs_by_external_controller_total",
			"[ALPHA] The number of Jobs managed by an external controller", "controller_name"),
	}
}

func mode(job *batchv1.Job) string {
	if indexed(job) {
		return string(batchv1.IndexedCompletion)
	}
	return string(batchv1.NonIndexedCompletion)
}

func (m *metrics) synced(job *batchv1.Job, action string, took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.duration.WithLabelValues(mode(job), result, action).Observe(took.Seconds())
	m.syncs.WithLabelValues(mode(job), result, action).Inc()
}

func (m *metrics) ended(job *batchv1.Job, end *batchv1.JobCondition) {
	result := "succeeded"
	if end.Type == batchv1.JobFailed {
		result = "failed"
	}
	m.finished.WithLabelValues(mode(job), result, end.Reason).Inc()
}

// addCounted counts the pods and indexes by which the counts in the status increased since the
// earlier status. The counts may also decrease, because an Indexed job was scaled down.
func (m *metrics) addCounted(job *batchv1.Job, was *batchv1.JobStatus) {
	m.podsFinished.WithLabelValues(mode(job), "succeeded").Add(float64(max(0, job.Status.Succeeded-was.Succeeded)))
	m.podsFinished.WithLabelValues(mode(job), "failed").Add(float64(max(0, job.Status.Failed-was.Failed)))
	if !indexed(job) || job.Spec.Completions == nil {
		return
	}
	limit := "global"
	if job.Spec.BackoffLimitPerIndex != nil {
		limit = "perIndex"
	}
	more := func(now, before string) float64 {
		most := int(*job.Spec.Completions)
		return float64(max(0, parseIndexes(now, most).count()-parseIndexes(before, most).count()))
	}
	if now, before := job.Status.CompletedIndexes, was.CompletedIndexes; now != before {
		m.finishedIndexes.WithLabelValues("succeeded", limit).Add(more(now, before))
	}
	if now, before := ptr.Deref(job.Status.FailedIndexes, ""), ptr.Deref(was.FailedIndexes, ""); now != before {
		m.finishedIndexes.WithLabelValues("failed", limit).Add(more(now, before))
	}
}

// made counts the creation of a pod. err is the error of the creation, or nil if it succeeded.
func (m *metrics) made(s *survey, err error) {
	reason, status := "new", "succeeded"
	switch replaces := ptr.Deref(s.job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed); {
	case replaces == batchv1.Failed && s.failed > 0:
		reason = "recreate_failed"
	case s.failed > 0 || s.terminating > 0:
		reason = "recreate_terminating_or_failed"
	}
	if err != nil {
		status = "failed"
	}
	m.podsMade.WithLabelValues(reason, status).Inc()
}

// observeJob counts a new job if another controller manages it.
func (m *metrics) observeJob(old, job *batchv1.Job) {
	if job != nil && foreign(job) && (old == nil || old.UID != job.UID) {
		m.foreign.WithLabelValues(*job.Spec.ManagedBy).Inc()
	}
}

// observePod counts pods that end while they have the tracking finalizer, and ended pods that lose
// it.
func (m *metrics) observePod(old, pod *v1.Pod) {
	if old != nil && pod != nil && old.UID != pod.UID {
		m.observePod(old, nil)
		old = nil
	}
	waits := func(p *v1.Pod) bool { return p != nil && terminal(p) && tracked(p) }
	switch was, is := waits(old), waits(pod); {
	case is && !was:
		m.withFinalizer.WithLabelValues("add").Inc()
	case was && !is:
		m.withFinalizer.WithLabelValues("delete").Inc()
	}
}
