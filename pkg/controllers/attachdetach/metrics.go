// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Names of operations, which are values of the label operation_name.
const (
	attachOperation = "volume_attach"
	detachOperation = "volume_detach"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts.
type metrics struct {
	operations *prometheus.HistogramVec
	forced     *prometheus.CounterVec

	mu sync.Mutex
	// begun is when an operation that an attacher carries out was requested.
	begun map[operation]time.Time
}

// operation is an attach or detach operation. The field attachment is the name of the
// VolumeAttachment, name the operation's name.
type operation struct{ attachment, name string }

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	return &metrics{
		begun: map[operation]time.Time{},
		operations: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "[BETA] Storage operation duration",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		forced: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "attach_detach_controller_attachdetach_controller_forced_detaches",
			Help: "[ALPHA] Number of times the A/D Controller performed a forced detach",
		}, []string{"reason"}),
	}
}

// pluginOf returns the value of the label volume_plugin for a CSI driver.
func pluginOf(driver string) string { return "kubernetes.io/csi:" + driver }

// begin records that an operation was requested now, unless an earlier request of the operation has
// not ended yet.
func (m *metrics) begin(attachment, name string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.begun[operation{attachment, name}]; !known {
		m.begun[operation{attachment, name}] = now
	}
}

// end records the duration and result of an operation that this process requested. After a failure
// the attacher tries again, so end also records that another operation begins.
func (m *metrics) end(a *storagev1.VolumeAttachment, name string, now time.Time, failed bool) {
	m.mu.Lock()
	start, known := m.begun[operation{a.Name, name}]
	delete(m.begun, operation{a.Name, name})
	if known && failed {
		m.begun[operation{a.Name, name}] = now
	}
	m.mu.Unlock()
	if !known {
		return
	}
	status := "success"
	if failed {
		status = "fail-unknown"
	}
	m.operations.WithLabelValues(pluginOf(a.Spec.Attacher), name, status, "false").Observe(now.Sub(start).Seconds())
}

// observe records the results of operations that a change of an attachment shows. old is nil if the
// attachment was added, a is nil if it was deleted.
func (m *metrics) observe(old, a *storagev1.VolumeAttachment, now time.Time) {
	switch {
	case a == nil:
		m.end(old, detachOperation, now, false)
		m.mu.Lock()
		delete(m.begun, operation{old.Name, attachOperation})
		m.mu.Unlock()
	case a.Status.Attached:
		m.end(a, attachOperation, now, false)
	case newError(old, a, func(s *storagev1.VolumeAttachmentStatus) *storagev1.VolumeError { return s.AttachError }):
		m.end(a, attachOperation, now, true)
	}
	if a != nil && newError(old, a,
		func(s *storagev1.VolumeAttachmentStatus) *storagev1.VolumeError { return s.DetachError }) {
		m.end(a, detachOperation, now, true)
	}
}

// newError reports whether a has an error that old does not have. The given function returns the
// error in a status: AttachError or DetachError.
func newError(old, a *storagev1.VolumeAttachment,
	of func(*storagev1.VolumeAttachmentStatus) *storagev1.VolumeError) bool {
	is := of(&a.Status)
	if is == nil || old == nil {
		return is != nil
	}
	was := of(&old.Status)
	return was == nil || !was.Time.Equal(&is.Time) || was.Message != is.Message
}

// detached counts a forced detach if the node reported the detached volume as in use.
func (m *metrics) detached(f *nodeFacts, volume v1.UniqueVolumeName) {
	for _, used := range f.inUse {
		if used != volume {
			continue
		}
		reason := "timeout"
		if f.node != nil && outOfService(f.node) {
			reason = "out-of-service"
		}
		m.forced.WithLabelValues(reason).Inc()
	}
}

// totals is a prometheus.Collector that counts volumes when the metrics are read.
type totals struct {
	c    *Controller
	desc *prometheus.Desc
}

func newTotals(c *Controller) totals {
	return totals{c, prometheus.NewDesc("attachdetach_controller_total_volumes",
		"[ALPHA] Number of volumes in A/D Controller", []string{"plugin_name", "state"}, nil)}
}

// Describe implements prometheus.Collector.
func (t totals) Describe(ch chan<- *prometheus.Desc) { ch <- t.desc }

// Collect implements prometheus.Collector.
func (t totals) Collect(ch chan<- prometheus.Metric) {
	wanted, actual := map[string]int{}, map[string]int{}
	for _, node := range t.c.pods.ListIndexFuncValues(byNode) {
		for _, w := range t.c.wantedOn(node) {
			wanted[pluginOf(w.target.driver)]++
		}
	}
	for _, o := range t.c.attachments.List() {
		if a := o.(*storagev1.VolumeAttachment); a.Status.Attached {
			actual[pluginOf(a.Spec.Attacher)]++
		}
	}
	for state, counts := range map[string]map[string]int{
		"desired_state_of_world": wanted, "actual_state_of_world": actual,
	} {
		for plugin, n := range counts {
			ch <- prometheus.MustNewConstMetric(t.desc, prometheus.GaugeValue, float64(n), plugin, state)
		}
	}
}
