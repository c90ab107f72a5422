// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// unknownPlugin is the value of the label plugin_name for volumes whose plugin Kubernetes'
// controller does not have.
const unknownPlugin = "N/A"

// counts is a prometheus.Collector of the numbers of volumes and claims in the caches. The metrics
// have Kubernetes' names, labels and help texts.
type counts struct {
	volumes                                        corelisters.PersistentVolumeLister
	claims                                         corelisters.PersistentVolumeClaimLister
	total, bound, unbound, boundClaims, freeClaims *prometheus.Desc
}

func newCounts(volumes corelisters.PersistentVolumeLister, claims corelisters.PersistentVolumeClaimLister) *counts {
	class, claim := []string{"storage_class"}, []string{"namespace", "storage_class", "volume_attributes_class"}
	return &counts{
		volumes: volumes, claims: claims,
		total: prometheus.NewDesc("pv_collector_total_pv_count",
			"[ALPHA] Gauge measuring total number of persistent volumes", []string{"plugin_name", "volume_mode"}, nil),
		bound: prometheus.NewDesc("pv_collector_bound_pv_count",
			"[ALPHA] Gauge measuring number of persistent volume currently bound", class, nil),
		unbound: prometheus.NewDesc("pv_collector_unbound_pv_count",
			"[ALPHA] Gauge measuring number of persistent volume currently unbound", class, nil),
		boundClaims: prometheus.NewDesc("pv_collector_bound_pvc_count",
			"[ALPHA] Gauge measuring number of persistent volume claim currently bound", claim, nil),
		freeClaims: prometheus.NewDesc("pv_collector_unbound_pvc_count",
			"[ALPHA] Gauge measuring number of persistent volume claim currently unbound", claim, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.total, c.bound, c.unbound, c.boundClaims, c.freeClaims} {
		ch <- d
	}
}

// series is one metric with the values of its labels.
type series struct {
	desc   *prometheus.Desc
	labels [3]string
	count  int // number of labels
}

// Collect implements prometheus.Collector.
func (c *counts) Collect(ch chan<- prometheus.Metric) {
	volumes, err := c.volumes.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return
	}
	found := map[series]int{}
	for _, v := range volumes {
		mode := string(ptr.Deref(v.Spec.VolumeMode, v1.PersistentVolumeFilesystem))
		found[series{c.total, [3]string{pluginOf(v), mode}, 2}]++
		state := c.unbound
		if v.Status.Phase == v1.VolumeBound {
			state = c.bound
		}
		found[series{state, [3]string{v.Spec.StorageClassName}, 1}]++
	}
	for _, claim := range claims {
		state := c.freeClaims
		if claim.Status.Phase == v1.ClaimBound {
			state = c.boundClaims
		}
		found[series{state, [3]string{claim.Namespace, volume.GetPersistentVolumeClaimClass(claim),
			ptr.Deref(claim.Spec.VolumeAttributesClassName, "")}, 3}]++
	}
	for s, n := range found {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(n), s.labels[:s.count]...)
	}
}

// pluginOf returns Kubernetes' name of the plugin of a volume. For CSI volumes it contains the name
// of the driver.
func pluginOf(v *v1.PersistentVolume) string {
	switch s := v.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return "kubernetes.io/csi:" + s.CSI.Driver
	case s.HostPath != nil:
		return "kubernetes.io/host-path"
	case s.NFS != nil:
		return "kubernetes.io/nfs"
	case s.Local != nil:
		return "kubernetes.io/local-volume"
	}
	return unknownPlugin
}
