// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// pending is how many events a watch of the pods API may be behind before it is ended.
const pending = 100

// Changes passes changes of pods to all watches. It is safe for concurrent use, and never blocks.
type Changes struct {
	log     *slog.Logger
	dropped prometheus.Counter

	mu      sync.Mutex
	watches map[chan *api.WatchPodsEvent]bool
	known   map[types.UID]metav1.ObjectMeta // name, namespace and UID of pods that have a status
}

// NewChanges returns a Changes to which no watch listens yet.
func NewChanges(log *slog.Logger) *Changes {
	return &Changes{
		log: log, watches: map[chan *api.WatchPodsEvent]bool{}, known: map[types.UID]metav1.ObjectMeta{},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_pod_watch_events_dropped_total",
			Help: "[ALPHA] Cumulative number of pod watch events dropped."}),
	}
}

// Updated reports a new status of a pod.
func (c *Changes) Updated(pod *v1.Pod, s v1.PodStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := api.EventType_MODIFIED
	if _, ok := c.known[pod.UID]; !ok {
		c.known[pod.UID] = metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		if pod.DeletionTimestamp == nil {
			kind = api.EventType_ADDED
		}
	}
	shown := *pod
	shown.Status = s
	c.send(kind, &shown)
}

// Removed reports that the node has released the resources of a pod.
func (c *Changes) Removed(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if meta, ok := c.known[uid]; ok {
		delete(c.known, uid)
		c.send(api.EventType_DELETED, &v1.Pod{ObjectMeta: meta})
	}
}

// watch returns a channel of changes, which is closed if the caller does not keep up. The caller must call
// stop.
func (c *Changes) watch() (events <-chan *api.WatchPodsEvent, stop func()) {
	ch := make(chan *api.WatchPodsEvent, pending)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[ch] = true
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, ch)
	}
}

// send sends an event to all watches of the pods API. c.mu is held.
func (c *Changes) send(kind api.EventType, pod *v1.Pod) {
	if len(c.watches) == 0 {
		return
	}
	data, err := marshal(pod)
	if err != nil {
		c.dropped.Inc()
		c.log.Error("Failed to encode a pod for watches", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		return
	}
	event := &api.WatchPodsEvent{Type: kind, Pod: data}
	for ch := range c.watches {
		select {
		case ch <- event:
		default:
			c.dropped.Inc()
			delete(c.watches, ch)
			close(ch)
		}
	}
}
