// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
)

// The operations in the metrics of the store.
const (
	getOperation    = "get"
	listOperation   = "list"
	createOperation = "create"
	updateOperation = "update"
	deleteOperation = "delete"
)

// storeMetrics are Kubernetes' metrics of requests to etcd.
type storeMetrics struct {
	clock         clock.Clock
	root          string
	duration      *prometheus.HistogramVec
	total, failed *prometheus.CounterVec
	broken        *prometheus.CounterVec          // values that could not be decoded
	builtIn       map[string]schema.GroupResource // resources by the first parts of their keys

	mu    sync.RWMutex
	known map[storeLabels]*storeSeries
}

// storeLabels are the labels in metrics of a request to the store.
type storeLabels struct {
	operation string
	resource  schema.GroupResource
}

// storeSeries are the metrics of requests with the same labels.
type storeSeries struct {
	duration      prometheus.Observer
	total, failed prometheus.Counter
}

// newStoreMetrics registers the metrics. root is the path of all keys.
func newStoreMetrics(r prometheus.Registerer, clk clock.Clock, root string, rows []*resource.Row) *storeMetrics {
	auto, labels := promauto.With(r), []string{"operation", "group", "resource"}
	m := &storeMetrics{
		clock: clk, root: strings.TrimSuffix(root, "/") + "/", builtIn: map[string]schema.GroupResource{},
		known: map[storeLabels]*storeSeries{},
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "etcd_request_duration_seconds",
			Help: "[ALPHA] Etcd request latency in seconds for each operation and object type.",
			Buckets: []float64{
				0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
			},
		}, labels),
		total: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_requests_total", Help: "[ALPHA] Etcd request counts for each operation and object type.",
		}, labels),
		failed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_request_errors_total",
			Help: "[ALPHA] Etcd failed request counts for each operation and object type.",
		}, labels),
		broken: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_storage_decode_errors_total",
			Help: "[ALPHA] Number of stored object decode errors split by object type",
		}, []string{"group", "resource"}),
	}
	for _, row := range rows {
		m.builtIn[row.StoragePrefix] = schema.GroupResource{Group: row.Group, Resource: row.Resource}
	}
	return m
}

// resourceOf returns the resource of a key. Keys that belong to no object have no resource.
func (m *storeMetrics) resourceOf(key string) schema.GroupResource {
	gr, _ := m.split(key)
	return gr
}

// split returns the resource of a key, and the rest of the key: the namespace and the name of the object,
// or its name. The key of a custom resource begins with its group and resource.
func (m *storeMetrics) split(key string) (gr schema.GroupResource, rest string) {
	object, ok := strings.CutPrefix(key, m.root)
	if !ok {
		return schema.GroupResource{}, ""
	}
	first, tail, _ := strings.Cut(object, "/")
	second, last, _ := strings.Cut(tail, "/")
	if gr, ok := m.builtIn[object[:min(len(object), len(first)+1+len(second))]]; ok {
		return gr, last // a key with a prefix of two parts, such as services/specs
	}
	if gr, ok := m.builtIn[first]; ok {
		return gr, tail
	}
	if strings.Contains(first, ".") {
		return schema.GroupResource{Group: first, Resource: second}, last
	}
	return schema.GroupResource{}, ""
}

// of returns the metrics of requests with the given labels.
func (m *storeMetrics) of(l storeLabels) *storeSeries {
	m.mu.RLock()
	s := m.known[l]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.known[l]; s == nil {
		// Copy the strings: a key is longer, and a substring would keep the whole key in memory.
		l.resource.Group, l.resource.Resource = strings.Clone(l.resource.Group), strings.Clone(l.resource.Resource)
		values := []string{l.operation, l.resource.Group, l.resource.Resource}
		s = &storeSeries{m.duration.WithLabelValues(values...), m.total.WithLabelValues(values...),
			m.failed.WithLabelValues(values...)}
		m.known[l] = s
	}
	return s
}

// undecodable records that the value of a key could not be decoded.
func (m *storeMetrics) undecodable(key string) {
	gr := m.resourceOf(key)
	m.broken.WithLabelValues(strings.Clone(gr.Group), strings.Clone(gr.Resource)).Inc()
}

// observe records a request for a key that began at start.
func (m *storeMetrics) observe(operation, key string, start time.Time, err error) {
	s := m.of(storeLabels{operation, m.resourceOf(key)})
	s.duration.Observe(m.clock.Since(start).Seconds())
	s.total.Inc()
	if err != nil {
		s.failed.Inc()
	}
}

// measuredStore records the metrics of all requests to a store.
type measuredStore struct {
	kv.Store
	metrics *storeMetrics
}

// Get implements kv.Store.
func (s measuredStore) Get(ctx context.Context, key string) (*kv.Item, int64, error) {
	start := s.metrics.clock.Now()
	item, rev, err := s.Store.Get(ctx, key)
	s.metrics.observe(getOperation, key, start, err)
	return item, rev, err
}

// Range implements kv.Store.
func (s measuredStore) Range(ctx context.Context, opts kv.RangeOptions) (kv.RangeResult, error) {
	start := s.metrics.clock.Now()
	res, err := s.Store.Range(ctx, opts)
	s.metrics.observe(listOperation, opts.Prefix, start, err)
	return res, err
}

// Put implements kv.Store.
func (s measuredStore) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	operation, start := updateOperation, s.metrics.clock.Now()
	if expect == 0 {
		operation = createOperation
	}
	res, err := s.Store.Put(ctx, key, value, expect, ttl, conditions...)
	s.metrics.observe(operation, key, start, err)
	return res, err
}

// Delete implements kv.Store.
func (s measuredStore) Delete(ctx context.Context, key string, expect int64) (kv.WriteResult, error) {
	start := s.metrics.clock.Now()
	res, err := s.Store.Delete(ctx, key, expect)
	s.metrics.observe(deleteOperation, key, start, err)
	return res, err
}

// WriteAll implements kv.Store. Kubernetes has no such request. It counts as an update of the first
// key.
func (s measuredStore) WriteAll(ctx context.Context, changes []kv.Change) (kv.WriteResult, error) {
	start := s.metrics.clock.Now()
	res, err := s.Store.WriteAll(ctx, changes)
	if len(changes) > 0 {
		s.metrics.observe(updateOperation, changes[0].Key, start, err)
	}
	return res, err
}
