// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// jobRow declares jobs.
func jobRow() *resource.Row {
	parts := strategy.Parts[batchv1.Job, batchv1.JobSpec, batchv1.JobStatus](func(o *batchv1.Job) (*batchv1.JobSpec, *batchv1.JobStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[batchv1.Job, batchv1.JobList]{
		Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true,
		Categories: []string{"all"},

		Default:                  defaultJob,
		PrepareCreate:            prepareJobCreate,
		PrepareUpdate:            prepareJobUpdate,
		Fields:                   jobFields,
		SelectableFields:         []string{"status.successful"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		DefaultGarbageCollection: metav1.DeletePropagationOrphan,

		Subresources: []resource.Sub[batchv1.Job]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
