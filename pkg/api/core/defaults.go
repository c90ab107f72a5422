// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/unset"
)

func defaultPod(pod *corev1.Pod) { podspec.DefaultPod(pod) }

func defaultPodTemplate(t *corev1.PodTemplate) { podspec.DefaultSpec(&t.Template.Spec) }

// defaultReplicationController takes the template's labels for the selector and
// for the controller's own where these are unset.
func defaultReplicationController(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 && t.Labels != nil {
			rc.Spec.Selector = t.Labels
		}
		if len(rc.Labels) == 0 && t.Labels != nil {
			rc.Labels = t.Labels
		}
		podspec.DefaultSpec(&t.Spec)
	}
	unset.Point(&rc.Spec.Replicas, 1)
}

// defaultConfigMap gives data that is absent the form it is stored in.
func defaultConfigMap(cm *corev1.ConfigMap) {
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
}

func defaultSecret(s *corev1.Secret) {
	unset.Fill(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) == 0 {
		return
	}
	// A way to write data, and never shown: what it says goes before data.
	if s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			unset.Fill(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// defaultNamespace labels a namespace with its name; one whose name is still to
// be generated gets the label when it has been.
func defaultNamespace(ns *corev1.Namespace) {
	if ns.Name != "" {
		labelNamespace(ns)
	}
	unset.Fill(&ns.Status.Phase, corev1.NamespaceActive)
}

func labelNamespace(ns *corev1.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func defaultNode(n *corev1.Node) {
	switch one, all := n.Spec.PodCIDR, n.Spec.PodCIDRs; {
	case one != "" && (len(all) == 0 || all[0] != one): // older clients know one only
		n.Spec.PodCIDRs = []string{one}
	case one == "" && len(all) > 0:
		n.Spec.PodCIDR = all[0]
	}
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	podspec.Milli(n.Status.Capacity)
	podspec.Milli(n.Status.Allocatable)
}

func defaultPersistentVolume(pv *corev1.PersistentVolume) {
	unset.Fill(&pv.Status.Phase, corev1.VolumePending)
	unset.Fill(&pv.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	unset.Point(&pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	podspec.Milli(pv.Spec.Capacity)
	podspec.DefaultPersistentSource(&pv.Spec.PersistentVolumeSource)
}

func defaultPersistentVolumeClaim(pvc *corev1.PersistentVolumeClaim) { DefaultClaim(pvc) }

// DefaultClaim fills a volume claim, or the template of one.
func DefaultClaim(pvc *corev1.PersistentVolumeClaim) {
	unset.Fill(&pvc.Status.Phase, corev1.ClaimPending)
	podspec.DefaultClaimSpec(&pvc.Spec)
	podspec.Milli(pvc.Status.Capacity)
	podspec.Milli(pvc.Status.AllocatedResources)
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	podspec.Milli(q.Spec.Hard)
	podspec.Milli(q.Status.Hard)
	podspec.Milli(q.Status.Used)
}

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			defaultContainerLimits(item)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			podspec.Milli(list)
		}
	}
}

// defaultContainerLimits derives a limit from the maximum, and a request from
// the limit or else from the minimum.
func defaultContainerLimits(item *corev1.LimitRangeItem) {
	if item.Default == nil {
		item.Default = corev1.ResourceList{}
	}
	if item.DefaultRequest == nil {
		item.DefaultRequest = corev1.ResourceList{}
	}
	inherit(item.Default, item.Max)
	inherit(item.DefaultRequest, item.Default)
	inherit(item.DefaultRequest, item.Min)
}

func inherit(to, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, ok := to[name]; !ok {
			to[name] = quantity.DeepCopy()
		}
	}
}
