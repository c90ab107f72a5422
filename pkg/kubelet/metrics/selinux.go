// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// AccessMode returns the access mode of a persistent volume as a label value: the abbreviation of the
// one with which most pods can use the volume. It returns "inline" for a volume without a
// PersistentVolume, as in Kubernetes (pkg/kubelet/volumemanager/cache: getVolumeAccessMode).
func AccessMode(pv *v1.PersistentVolume) string {
	if pv == nil {
		return "inline"
	}
	for _, m := range []struct {
		mode v1.PersistentVolumeAccessMode
		name string
	}{
		{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(pv.Spec.AccessModes, m.mode) {
			return m.name
		}
	}
	return ""
}

// Labels holds the metrics about mounting volumes with an SELinux label. Each retry of a failed
// mount counts its error again. As in Kubernetes, the metrics are gauges, although their values only
// increase. The argument mode of the methods is the result of AccessMode.
type Labels struct {
	container, pod, volume, admitted *prometheus.GaugeVec
}

func newLabels(r prometheus.Registerer) *Labels {
	l := &Labels{
		container: gauge("volume_manager_selinux_container_errors_total",
			"[ALPHA] Number of errors when the SELinux label of a container was determined.", "access_mode"),
		pod: gauge("volume_manager_selinux_pod_context_mismatch_errors_total",
			"[ALPHA] Number of times that containers of a pod needed a volume with different SELinux labels.", "access_mode"),
		volume: gauge("volume_manager_selinux_volume_context_mismatch_errors_total",
			"[ALPHA] Number of times that a pod needed a volume with another SELinux label than it was mounted with.",
			"volume_plugin", "access_mode"),
		admitted: gauge("volume_manager_selinux_volumes_admitted_total",
			"[ALPHA] Number of volumes that were mounted with the SELinux label that their pod needs.",
			"volume_plugin", "access_mode"),
	}
	register(r, l.container, l.pod, l.volume, l.admitted)
	return l
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// LabelError counts a container whose label cannot be determined.
func (l *Labels) LabelError(mode string) { l.container.WithLabelValues(mode).Inc() }

// PodMismatch counts a pod whose containers need different labels for the same volume.
func (l *Labels) PodMismatch(mode string) { l.pod.WithLabelValues(mode).Inc() }

// VolumeMismatch counts a volume that is already mounted with a label other than the one that a pod
// needs.
func (l *Labels) VolumeMismatch(driver, mode string) {
	l.volume.WithLabelValues(plugin(driver), mode).Inc()
}

// Admitted counts a volume that is mounted with the label that the pod needs.
func (l *Labels) Admitted(driver, mode string) {
	l.admitted.WithLabelValues(plugin(driver), mode).Inc()
}

func plugin(driver string) string { return "kubernetes.io/csi/" + driver }
