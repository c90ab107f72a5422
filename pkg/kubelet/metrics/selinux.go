// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// accessMode is how Kubernetes abbreviates that of the volumes that are mounted with an SELinux
// label: ReadWriteOncePod.
const accessMode = "RWOP"

// Labels counts what comes of mounting volumes with an SELinux label. What fails is counted
// again when it is tried again. They are gauges, as Kubernetes has them, and only grow.
type Labels struct {
	container, pod, volume, admitted *prometheus.GaugeVec
}

func newLabels(r prometheus.Registerer) *Labels {
	l := &Labels{
		container: gauge("volume_manager_selinux_container_errors_total", "[ALPHA] How often the SELinux label of a container could not be told.", "access_mode"),
		pod: gauge("volume_manager_selinux_pod_context_mismatch_errors_total",
			"[ALPHA] How often the containers of a pod wanted one volume with different SELinux labels.", "access_mode"),
		volume: gauge("volume_manager_selinux_volume_context_mismatch_errors_total",
			"[ALPHA] How often a pod wanted a volume with another SELinux label than it was mounted with.", "volume_plugin", "access_mode"),
		admitted: gauge("volume_manager_selinux_volumes_admitted_total",
			"[ALPHA] Volumes that are mounted with the SELinux label that their pod wants.", "volume_plugin", "access_mode"),
	}
	register(r, l.container, l.pod, l.volume, l.admitted)
	return l
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Unknown counts a container whose label cannot be told.
func (l *Labels) Unknown() { l.container.WithLabelValues(accessMode).Inc() }

// Differ counts a pod whose containers want a volume with different labels.
func (l *Labels) Differ() { l.pod.WithLabelValues(accessMode).Inc() }

// Other counts a volume of a driver that is mounted with another label.
func (l *Labels) Other(driver string) { l.volume.WithLabelValues(plugin(driver), accessMode).Inc() }

// Admitted counts a volume of a driver that is mounted with the label that is wanted.
func (l *Labels) Admitted(driver string) {
	l.admitted.WithLabelValues(plugin(driver), accessMode).Inc()
}

func plugin(driver string) string { return "kubernetes.io/csi/" + driver }
