// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestMetrics checks the metrics about finished indexes, created pods and jobs that other
// controllers manage.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	job := &batchv1.Job{Spec: batchv1.JobSpec{Completions: ptr.To[int32](9), BackoffLimitPerIndex: ptr.To[int32](1),
		CompletionMode: ptr.To(batchv1.IndexedCompletion)}}
	was := job.Status
	job.Status.CompletedIndexes, job.Status.FailedIndexes = "0-2,4", ptr.To("3")
	m.addCounted(job, &was)
	m.addCounted(job, &job.Status)
	m.made(&survey{job: job}, nil)
	m.made(&survey{job: job, terminating: 1}, nil)
	job.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	m.made(&survey{job: job, failed: 1}, errors.New("no"))
	m.observeJob(nil, job)
	job.Spec.ManagedBy = ptr.To("example.com/other")
	m.observeJob(nil, job)
	m.observeJob(job, job)
	m.observeJob(job, nil)
	got := controllertest.Metrics(t, r)
	for name, want := range map[string]float64{
		"job_finished_indexes_total{backoffLimit=perIndex,status=succeeded}":              4,
		"job_finished_indexes_total{backoffLimit=perIndex,status=failed}":                 1,
		"job_pods_creation_total{reason=new,status=succeeded}":                            1,
		"job_pods_creation_total{reason=recreate_terminating_or_failed,status=succeeded}": 1,
		"job_pods_creation_total{reason=recreate_failed,status=failed}":                   1,
		"jobs_by_external_controller_total{controller_name=example.com/other}":            1,
	} {
		if got["job_controller_"+name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got["job_controller_"+name], want, got)
		}
	}
}
