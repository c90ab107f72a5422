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

// cronJobRow declares cronjobs.
func cronJobRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[batchv1.CronJob, batchv1.CronJobSpec, batchv1.CronJobStatus](func(o *batchv1.CronJob) (*batchv1.CronJobSpec, *batchv1.CronJobStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[batchv1.CronJobList](resource.Kind[*batchv1.CronJob]{
		Group: "batch", Version: "v1", Resource: "cronjobs", Kind: "CronJob", Namespaced: true,
		ShortNames: []string{"cj"}, Categories: []string{"all"},

		Default:                  defaultCronJob,
		PrepareCreate:            prepareCronJobCreate,
		Validate:                 podspec.Validate(p, validateCronJob),
		PrepareUpdate:            prepareCronJobUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateCronJobUpdate),
		Warnings:                 warnCronJob,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Schedule", Type: "string", Description: batchv1.CronJobSpec{}.SwaggerDoc()["schedule"]},
			{Name: "Timezone", Type: "string", Description: batchv1.CronJobSpec{}.SwaggerDoc()["timeZone"]},
			{Name: "Suspend", Type: "boolean", Description: batchv1.CronJobSpec{}.SwaggerDoc()["suspend"]},
			{Name: "Active", Type: "integer", Description: batchv1.CronJobStatus{}.SwaggerDoc()["active"]},
			{Name: "Last Schedule", Type: "string", Description: batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: batchv1.JobSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: cronJobCells,

		Subresources: []resource.Sub[*batchv1.CronJob]{
			{Subresource: strategy.View("status", "spec").WithMetaRules(resource.MetaRules{SkipUpdateChecks: true}), PrepareUpdate: parts.KeepSpec},
		},
	})
}
