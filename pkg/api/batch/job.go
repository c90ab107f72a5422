// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// jobRow declares jobs.
func jobRow(p podspec.Policy) *resource.Row {
	return resource.Of[batchv1.JobList](resource.Kind[*batchv1.Job]{
		Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true,
		Categories: []string{"all"},

		Default:                  defaultJob,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		PrepareCreate:            prepareJobCreate,
		Validate:                 podspec.Validate(p, validateJob),
		Canonicalize:             inheritLabels,
		PrepareUpdate:            prepareJobUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateJobUpdate),
		Warnings:                 warnJob,
		Fields:                   jobFields,
		FieldPaths:               []string{"status.succeeded"},
		SelectableFields:         []string{"status.successful"},
		UnknownField:             "field label %[1]q not supported for Job",
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		DefaultGarbageCollection: metav1.DeletePropagationOrphan,
		OrphanWarning:            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "Status of the job."},
			{Name: "Completions", Type: "string", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"]},
			{Name: "Duration", Type: "string", Description: "Time required to complete the job."},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: batchv1.JobSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: jobCells,

		Subresources: []resource.Sub[*batchv1.Job]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareJobStatus, ValidateUpdate: validateJobStatus},
		},
	})
}
