// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

func prepareNamespaceCreate(_ context.Context, ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func prepareNamespaceUpdate(_ context.Context, ns, old *corev1.Namespace) {
	ns.Spec.Finalizers = old.Spec.Finalizers
	ns.Status = old.Status
}

func canonicalizeNamespace(ns *corev1.Namespace) { labelNamespace(ns) }

// prepareNodeCreate keeps the status: a kubelet registers its node with it.
func prepareNodeCreate(_ context.Context, n *corev1.Node) {
	n.Spec.ConfigSource, n.Status.Config = nil, nil
}

func prepareNodeUpdate(_ context.Context, n, old *corev1.Node) {
	n.Status = old.Status
	if old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource = nil
	}
}

func prepareNodeStatus(_ context.Context, n, old *corev1.Node) {
	n.Spec = old.Spec
	if old.Status.Config == nil {
		n.Status.Config = nil
	}
}

// prepareLimitRangeCreate names a range that has no name: it alone may do without.
func prepareLimitRangeCreate(_ context.Context, l *corev1.LimitRange) {
	if l.Name == "" {
		l.Name = string(l.UID)
	}
}

func preparePodTemplateCreate(ctx context.Context, t *corev1.PodTemplate) {
	strategy.StartGeneration(ctx, t)
	podspec.DropDisabled(&t.Template.Spec, nil)
}

func preparePodTemplateUpdate(_ context.Context, t, old *corev1.PodTemplate) {
	podspec.DropDisabled(&t.Template.Spec, &old.Template.Spec)
	strategy.Count(t, old, equal.Values(t.Template, old.Template))
}

func prepareReplicationControllerCreate(_ context.Context, rc *corev1.ReplicationController) {
	rc.Status = corev1.ReplicationControllerStatus{}
	rc.Generation = 1
	if rc.Spec.Template != nil {
		podspec.DropDisabled(&rc.Spec.Template.Spec, nil)
	}
}

func prepareReplicationControllerUpdate(_ context.Context, rc, old *corev1.ReplicationController) {
	rc.Status = old.Status
	if t := rc.Spec.Template; t != nil {
		var was *corev1.PodSpec
		if old.Spec.Template != nil {
			was = &old.Spec.Template.Spec
		}
		podspec.DropDisabled(&t.Spec, was)
	}
	strategy.Count(rc, old, equal.Values(rc.Spec, old.Spec))
}

// prepareSecretUpdate keeps the type of a secret that is written without one.
func prepareSecretUpdate(_ context.Context, s, old *corev1.Secret) {
	if s.Type == "" {
		s.Type = old.Type
	}
}

// prepareServiceAccountCreate keeps nothing of a secret reference but its name.
func prepareServiceAccountCreate(_ context.Context, sa *corev1.ServiceAccount) {
	for i, secret := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}

func prepareServiceAccountUpdate(ctx context.Context, sa, _ *corev1.ServiceAccount) {
	prepareServiceAccountCreate(ctx, sa)
}

func preparePersistentVolumeCreate(_ context.Context, pv *corev1.PersistentVolume) {
	created := pv.CreationTimestamp
	pv.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &created}
}

// preparePersistentVolumeStatus stamps a change of phase unless the client did.
func preparePersistentVolumeStatus(ctx context.Context, pv, old *corev1.PersistentVolume) {
	pv.Spec = old.Spec
	stamp, was := pv.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime
	switch samePhase := pv.Status.Phase == old.Status.Phase; {
	case samePhase && stamp == nil:
		pv.Status.LastPhaseTransitionTime = was
	case !samePhase && (stamp == nil || stamp.Equal(was)):
		now := resource.Time(ctx)
		pv.Status.LastPhaseTransitionTime = &now
	}
}

func preparePersistentVolumeClaimCreate(_ context.Context, pvc *corev1.PersistentVolumeClaim) {
	pvc.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	dropClaimFields(&pvc.Spec, nil)
	completeDataSources(&pvc.Spec)
}

func preparePersistentVolumeClaimUpdate(_ context.Context, pvc, old *corev1.PersistentVolumeClaim) {
	pvc.Status = old.Status
	dropClaimFields(&pvc.Spec, &old.Spec)
	completeDataSources(&pvc.Spec)
	completeDataSources(&old.Spec)
}

const snapshotGroup = "snapshot.storage.k8s.io"

// dropClaimFields drops sources that the fields never could name: from another
// namespace, and by the older field anything but a claim or a snapshot.
func dropClaimFields(spec, old *corev1.PersistentVolumeClaimSpec) {
	hadSource := old != nil && old.DataSource != nil
	hadRef := old != nil && old.DataSourceRef != nil
	if ref := spec.DataSourceRef; ref != nil && ref.Namespace != nil && *ref.Namespace != "" && !hadRef {
		spec.DataSourceRef = nil
	}
	if hadSource || hadRef || spec.DataSourceRef != nil || spec.DataSource == nil {
		return
	}
	group := ""
	if spec.DataSource.APIGroup != nil {
		group = *spec.DataSource.APIGroup
	}
	claim := group == "" && spec.DataSource.Kind == "PersistentVolumeClaim"
	snapshot := group == snapshotGroup && spec.DataSource.Kind == "VolumeSnapshot"
	if !claim && !snapshot {
		spec.DataSource = nil
	}
}

// completeDataSources keeps the older and the younger field in step.
func completeDataSources(spec *corev1.PersistentVolumeClaimSpec) {
	source, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}
