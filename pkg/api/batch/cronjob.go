// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// cronJobRow declares cronjobs.
func cronJobRow() *resource.Row {
	parts := strategy.Parts[batchv1.CronJob, batchv1.CronJobSpec, batchv1.CronJobStatus](func(o *batchv1.CronJob) (*batchv1.CronJobSpec, *batchv1.CronJobStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[batchv1.CronJob, batchv1.CronJobList]{
		Group: "batch", Version: "v1", Resource: "cronjobs", Kind: "CronJob", Namespaced: true,
		ShortNames: []string{"cj"}, Categories: []string{"all"},

		Default:                  defaultCronJob,
		PrepareCreate:            prepareCronJobCreate,
		PrepareUpdate:            prepareCronJobUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[batchv1.CronJob]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
