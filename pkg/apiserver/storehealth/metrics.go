// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"keelson.dev/apiserver/store/kv/etcd"
)

// Metrics are the metrics of all keepers of a server.
type Metrics struct {
	size, inUse, quota, noSpace *prometheus.GaugeVec
	level                       *prometheus.GaugeVec
	refused                     *prometheus.CounterVec
	defragmentations            *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	member := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "keelson_store_member_" + name, Help: help}, labels)
	}
	return &Metrics{
		size: member("size_bytes", "Size of the database of a member of etcd.", "database", "member"),
		inUse: member("in_use_bytes", "Size of the database of a member of etcd without free pages, which etcd "+
			"uses for new data.", "database", "member"),
		quota: member("quota_bytes", "Size of the database at which a member of etcd rejects writes; 0 if it is not known.",
			"database", "member"),
		noSpace: member("no_space_alarm", "1 if a member of etcd knows that the alarm NOSPACE is on, which makes "+
			"etcd reject writes; otherwise 0.", "database", "member"),
		level: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "keelson_store_level",
			Help: "How little space is left in a database: 0 ample, 1 warning, 2 new and larger objects are " +
				"refused, 3 all growth is refused."}, []string{"database"}),
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "keelson_store_refused_writes_total",
			Help: "Number of writes that the API server refused because little space was left in a database."},
			[]string{"database"}),
		defragmentations: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "keelson_store_defragmentation_duration_seconds",
			Help:    "Time of defragmentations of members of etcd that this server has requested.",
			Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300},
		}, []string{"database", "result"}),
	}
}

// observe sets the metrics of a database and its members. It returns the IDs of the members that have
// metrics, and removes the metrics of those that had them before.
func (m *Metrics) observe(database string, members []etcd.Member, level Level, before []string) (shown []string) {
	m.level.WithLabelValues(database).Set(float64(level))
	for i := range members {
		each := &members[i]
		if each.Err != nil {
			continue
		}
		shown = append(shown, memberID(each))
		labels := []string{database, memberID(each)}
		m.size.WithLabelValues(labels...).Set(float64(each.Size))
		m.inUse.WithLabelValues(labels...).Set(float64(each.InUse))
		m.quota.WithLabelValues(labels...).Set(float64(each.Quota))
		var alarm float64
		if each.NoSpace {
			alarm = 1
		}
		m.noSpace.WithLabelValues(labels...).Set(alarm)
	}
	for _, id := range before {
		if slices.Contains(shown, id) {
			continue
		}
		for _, v := range []*prometheus.GaugeVec{m.size, m.inUse, m.quota, m.noSpace} {
			v.DeleteLabelValues(database, id)
		}
	}
	return shown
}

// memberID returns the ID of a member as etcdctl prints it.
func memberID(m *etcd.Member) string { return fmt.Sprintf("%x", m.ID) }
