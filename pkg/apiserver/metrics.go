// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store"
)

// storageTimeout limits a query of the store's size.
const storageTimeout = 2 * time.Second

// sized is a database that can report the size of its file in bytes.
type sized interface {
	Size(ctx context.Context) (int64, error)
}

// storageMetrics exports Kubernetes' metrics of stored objects.
type storageMetrics struct {
	a                                   *assembly
	objects, resources, size, events    *prometheus.Desc
	lists, fetched, evaluated, returned *prometheus.Desc
}

func (a *assembly) storageMetrics() *storageMetrics {
	return &storageMetrics{
		a: a,
		objects: prometheus.NewDesc("apiserver_storage_objects", "[STABLE] [DEPRECATED, consider using "+
			"apiserver_resource_objects instead] Number of stored objects at the time of last check split "+
			"by kind. In case of a fetching error, the value will be -1.", []string{"resource"}, nil),
		resources: prometheus.NewDesc("apiserver_resource_objects", "[ALPHA] Number of stored objects at "+
			"the time of last check split by kind. In case of a fetching error, the value will be -1.",
			[]string{"group", "resource"}, nil),
		events: prometheus.NewDesc("apiserver_storage_events_received_total",
			"[BETA] Number of etcd events received split by kind.", []string{"group", "resource"}, nil),
		size: prometheus.NewDesc("apiserver_storage_size_bytes",
			"[STABLE] Size of the storage database file physically allocated in bytes.", []string{"storage_cluster_id"}, nil),
		lists: prometheus.NewDesc("apiserver_storage_list_total", "[ALPHA] Number of LIST requests served from storage",
			[]string{"group", "resource", "storage", "index"}, nil),
		fetched: prometheus.NewDesc("apiserver_storage_list_fetched_objects_total",
			"[ALPHA] Number of objects read from storage in the course of serving a LIST request",
			[]string{"group", "resource", "storage", "index"}, nil),
		evaluated: prometheus.NewDesc("apiserver_storage_list_evaluated_objects_total",
			"[ALPHA] Number of objects tested in the course of serving a LIST request from storage",
			[]string{"group", "resource", "storage"}, nil),
		returned: prometheus.NewDesc("apiserver_storage_list_returned_objects_total",
			"[ALPHA] Number of objects returned for a LIST request from storage",
			[]string{"group", "resource", "storage"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *storageMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.objects
	ch <- m.resources
	ch <- m.events
	ch <- m.size
	ch <- m.lists
	ch <- m.fetched
	ch <- m.evaluated
	ch <- m.returned
}

// Collect implements prometheus.Collector. It reads the number of objects from the caches, and from
// the storage for resources that no cache has loaded.
func (m *storageMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storageTimeout)
	defer cancel()
	for _, gr := range m.a.api.Resources() {
		r := m.a.api.Registry(gr)
		if r == nil {
			continue
		}
		s := r.Store()
		stats := s.Stats()
		if !stats.Stored {
			continue
		}
		if m.a.cfg.Etcd.CountPeriod > 0 {
			n := float64(stats.Objects)
			if !stats.Started {
				n = -1
				if stored, err := s.Count(ctx); err == nil {
					n = float64(stored)
				}
			}
			ch <- prometheus.MustNewConstMetric(m.objects, prometheus.GaugeValue, n, gr.String())
			ch <- prometheus.MustNewConstMetric(m.resources, prometheus.GaugeValue, n, gr.Group, gr.Resource)
		}
		if stats.Received > 0 {
			ch <- prometheus.MustNewConstMetric(m.events, prometheus.CounterValue, float64(stats.Received),
				gr.Group, gr.Resource)
		}
		m.collectLists(ch, gr, &stats, r.Row().IndexFields)
	}
	// Kubernetes reports the size of the first database only.
	if m.a.databases.sized == nil {
		return
	}
	if n, err := m.a.databases.sized.Size(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(m.size, prometheus.GaugeValue, float64(n), "etcd-0")
	}
}

// The values of the label storage, as in Kubernetes.
const (
	fromCache   = "watchcache"
	fromStorage = "etcd"
)

// collectLists exports the metrics of lists of a resource.
func (m *storageMetrics) collectLists(ch chan<- prometheus.Metric, gr schema.GroupResource, stats *store.Stats,
	indexFields []string) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n),
			append([]string{gr.Group, gr.Resource}, labels...)...)
	}
	read := func(s *store.ListStats, storage, index string) {
		if s.Lists > 0 {
			count(m.lists, s.Lists, storage, index)
			count(m.fetched, s.Fetched, storage, index)
		}
	}
	cached, indexed, stored := &stats.CachedLists, &stats.IndexedLists, &stats.StoredLists
	read(cached, fromCache, "")
	if len(indexFields) > 0 {
		read(indexed, fromCache, "f:"+indexFields[0]) // no resource has more than one index
	}
	read(stored, fromStorage, "")
	if cached.Lists+indexed.Lists > 0 {
		count(m.evaluated, 0, fromCache) // Kubernetes counts only objects from the storage
		count(m.returned, cached.Returned+indexed.Returned, fromCache)
	}
	if stored.Lists > 0 {
		count(m.evaluated, stored.Evaluated, fromStorage)
		count(m.returned, stored.Returned, fromStorage)
	}
}

// metricsHandler serves those metrics of a gatherer that filter lets through. A DELETE request
// resets them.
func metricsHandler(from prometheus.Gatherer, filter *metricFilter) http.Handler {
	return &resettable{from: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := from.Gather()
		if err != nil {
			return nil, err
		}
		return filter.apply(families), nil
	})}
}
