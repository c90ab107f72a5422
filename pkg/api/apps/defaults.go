// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/api/core"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/unset"
)

const (
	revisionHistory         int32 = 10
	progressDeadlineSeconds int32 = 600
)

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	podspec.DefaultSpec(&spec.Template.Spec)
	unset.Point(&spec.Replicas, 1)
	unset.Fill(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		rolling := unset.Make(&spec.Strategy.RollingUpdate)
		unset.Point(&rolling.MaxUnavailable, intstr.FromString("25%"))
		unset.Point(&rolling.MaxSurge, intstr.FromString("25%"))
	}
	unset.Point(&spec.RevisionHistoryLimit, revisionHistory)
	unset.Point(&spec.ProgressDeadlineSeconds, progressDeadlineSeconds)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	spec := &d.Spec
	podspec.DefaultSpec(&spec.Template.Spec)
	unset.Fill(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		rolling := unset.Make(&spec.UpdateStrategy.RollingUpdate)
		unset.Point(&rolling.MaxUnavailable, intstr.FromInt32(1))
		unset.Point(&rolling.MaxSurge, intstr.FromInt32(0))
	}
	unset.Point(&spec.RevisionHistoryLimit, revisionHistory)
	setTemplateGeneration(d, templateGeneration(d))
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	podspec.DefaultSpec(&spec.Template.Spec)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		core.DefaultClaim(claim)
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
	}
	unset.Fill(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	// A strategy that was named without its settings stays without them.
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		unset.Make(&spec.UpdateStrategy.RollingUpdate)
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		unset.Point(&rolling.Partition, 0)
	}
	retention := unset.Make(&spec.PersistentVolumeClaimRetentionPolicy)
	unset.Fill(&retention.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	unset.Fill(&retention.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	unset.Point(&spec.Replicas, 1)
	unset.Point(&spec.RevisionHistoryLimit, revisionHistory)
}

func defaultReplicaSet(rs *appsv1.ReplicaSet) {
	podspec.DefaultSpec(&rs.Spec.Template.Spec)
	unset.Point(&rs.Spec.Replicas, 1)
}
