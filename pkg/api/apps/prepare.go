// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/apiserver/equal"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

func prepareDeploymentCreate(_ context.Context, d *appsv1.Deployment) {
	d.Status = appsv1.DeploymentStatus{}
	d.Generation = 1
	podspec.DropDisabled(&d.Spec.Template.Spec, nil)
}

// prepareDeploymentUpdate counts a change of annotations too: they are carried
// over to replica sets.
func prepareDeploymentUpdate(_ context.Context, d, old *appsv1.Deployment) {
	d.Status = old.Status
	podspec.DropDisabled(&d.Spec.Template.Spec, &old.Spec.Template.Spec)
	strategy.Count(d, old, equal.Values(d.Spec, old.Spec) && equal.Values(d.Annotations, old.Annotations))
}

func prepareDeploymentStatus(_ context.Context, d, old *appsv1.Deployment) {
	d.Spec = old.Spec
	d.Labels = old.Labels
}

func prepareReplicaSetCreate(_ context.Context, rs *appsv1.ReplicaSet) {
	rs.Status = appsv1.ReplicaSetStatus{}
	rs.Generation = 1
	podspec.DropDisabled(&rs.Spec.Template.Spec, nil)
}

func prepareReplicaSetUpdate(_ context.Context, rs, old *appsv1.ReplicaSet) {
	rs.Status = old.Status
	podspec.DropDisabled(&rs.Spec.Template.Spec, &old.Spec.Template.Spec)
	strategy.Count(rs, old, equal.Values(rs.Spec, old.Spec))
}

func prepareStatefulSetCreate(_ context.Context, s *appsv1.StatefulSet) {
	s.Status = appsv1.StatefulSetStatus{}
	s.Generation = 1
	dropMaxUnavailable(s, nil)
	podspec.DropDisabled(&s.Spec.Template.Spec, nil)
}

func prepareStatefulSetUpdate(_ context.Context, s, old *appsv1.StatefulSet) {
	s.Status = old.Status
	dropMaxUnavailable(s, old)
	podspec.DropDisabled(&s.Spec.Template.Spec, &old.Spec.Template.Spec)
	strategy.Count(s, old, equal.Values(s.Spec, old.Spec))
}

// dropMaxUnavailable drops a setting whose feature is off by default.
func dropMaxUnavailable(s, old *appsv1.StatefulSet) {
	if old != nil && old.Spec.UpdateStrategy.RollingUpdate != nil && old.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable != nil {
		return
	}
	if rolling := s.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		rolling.MaxUnavailable = nil
	}
}

func prepareDaemonSetCreate(_ context.Context, d *appsv1.DaemonSet) {
	d.Status = appsv1.DaemonSetStatus{}
	d.Generation = 1
	setTemplateGeneration(d, max(templateGeneration(d), 1))
	podspec.DropDisabled(&d.Spec.Template.Spec, nil)
}

func prepareDaemonSetUpdate(_ context.Context, d, old *appsv1.DaemonSet) {
	d.Status = old.Status
	podspec.DropDisabled(&d.Spec.Template.Spec, &old.Spec.Template.Spec)
	count := templateGeneration(old)
	if !equal.Values(d.Spec.Template, old.Spec.Template) {
		count++
	}
	setTemplateGeneration(d, count)
	strategy.Count(d, old, equal.Values(d.Spec, old.Spec))
}

func prepareDaemonSetStatus(_ context.Context, d, old *appsv1.DaemonSet) {
	d.Spec = old.Spec
	setTemplateGeneration(d, templateGeneration(old))
}
