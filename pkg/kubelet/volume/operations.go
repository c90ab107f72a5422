// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// pluginOf returns the name of a volume's plugin. For a claim it returns pluginNone, because only
// the bound PersistentVolume has a plugin, which persistentPlugin returns.
func pluginOf(s *v1.VolumeSource) string {
	switch {
	case s.EmptyDir != nil:
		return pluginEmptyDir
	case s.ConfigMap != nil:
		return pluginConfigMap
	case s.Secret != nil:
		return pluginSecret
	case s.Projected != nil:
		return pluginProjected
	case s.DownwardAPI != nil:
		return pluginDownwardAPI
	case s.HostPath != nil:
		return pluginHostPath
	case s.Image != nil:
		return pluginImage
	case s.NFS != nil:
		return pluginNFS
	case s.CSI != nil:
		return pluginCSI
	}
	return pluginNone
}

// persistentPlugin returns the name of a persistent volume's plugin. For CSI it includes the name
// of the driver.
func persistentPlugin(s *v1.PersistentVolumeSource) string {
	switch {
	case s.CSI != nil:
		return pluginCSI + ":" + s.CSI.Driver
	case s.HostPath != nil:
		return pluginHostPath
	case s.Local != nil:
		return pluginLocal
	case s.NFS != nil:
		return pluginNFS
	}
	return pluginNone
}

// mount calls prepare to set up a volume and records the duration in a metric with the plugin's
// name as a label. For an inline CSI volume the label includes the driver's name only if the mount
// succeeded. Otherwise pods with invented driver names could create any number of label values.
func (m *Manager) mount(plugin string, block bool, prepare func() (prepared, error)) (prepared, error) {
	operation, begun := metrics.VolumeMount, m.cfg.Clock.Now()
	if block {
		operation = metrics.MapVolume
	}
	p, err := prepare()
	if err == nil && plugin == pluginCSI {
		plugin += ":" + p.driven.Inline.Driver
	}
	p.plugin = plugin
	m.cfg.Metrics.Operation(plugin, operation, m.cfg.Clock.Since(begun), err)
	return p, err
}

// unmounted records one duration for each of the removed volumes of a pod, because all of them are
// removed in one operation.
func (m *Manager) unmounted(list []prepared, begun time.Time, err error) {
	took := m.cfg.Clock.Since(begun)
	for i := range list {
		operation := metrics.VolumeUnmount
		if list[i].device != "" {
			operation = metrics.UnmapVolume
		}
		m.cfg.Metrics.Operation(list[i].plugin, operation, took, err)
	}
}

// show copies the ready volumes to shown, from which readers get them without mu. The caller holds
// pv.mu.
func (pv *podVolumes) show() {
	ready := maps.Clone(pv.ready)
	pv.shown.Store(&ready)
}

// seen returns the ready volumes as the last call of show stored them.
func (pv *podVolumes) seen() map[string]prepared {
	if p := pv.shown.Load(); p != nil {
		return *p
	}
	return nil
}

// Counts returns, by plugin, how many volumes are mounted (There is true) and how many volumes the
// pods use (There is false). It does not wait for mounts in progress.
func (m *Manager) Counts() map[metrics.VolumeCount]int {
	m.mu.Lock()
	pods := slices.Collect(maps.Values(m.pods))
	m.mu.Unlock()
	out := map[metrics.VolumeCount]int{}
	for _, pv := range pods {
		ready := pv.seen()
		for _, p := range ready {
			out[metrics.VolumeCount{Plugin: p.plugin, There: true}]++
		}
		pod := pv.pod.Load()
		if pod == nil {
			continue
		}
		for _, v := range usedVolumes(pod) {
			plugin := pluginOf(&v.VolumeSource)
			if p, ok := ready[v.Name]; ok {
				plugin = p.plugin
			}
			out[metrics.VolumeCount{Plugin: plugin}]++
		}
	}
	return out
}
