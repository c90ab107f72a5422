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
	known   map[types.UID]bool // pods that were reported to the watches of that time; true after Removed
}

// NewChanges returns a Changes to which no watch listens yet.
func NewChanges(log *slog.Logger) *Changes {
	return &Changes{
		log: log, watches: map[chan *api.WatchPodsEvent]bool{}, known: map[types.UID]bool{},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_pod_watch_events_dropped_total",
			Help: "[ALPHA] Cumulative number of pod watch events dropped."}),
	}
}

// Updated reports a new status of a pod. It has no effect after Removed, because a pod that has ended still
// gets its last status.
func (c *Changes) Updated(pod *v1.Pod, s v1.PodStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := api.EventType_MODIFIED
	finished, ok := c.known[pod.UID]
	if finished {
		return
	}
	if !ok {
		c.known[pod.UID] = false
		if pod.DeletionTimestamp == nil {
			kind = api.EventType_ADDED
		}
	}
	shown := *pod
	shown.Status = s
	c.send(kind, &shown)
}

// Removed reports that the node has released the resources of a pod. It sends an event even if no
// status of the pod was reported, because watches may know the pod from their initial list.
func (c *Changes) Removed(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[pod.UID] {
		return
	}
	c.known[pod.UID] = true
	c.send(api.EventType_DELETED,
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}})
}

// Forget drops the record of a pod that no longer has a worker.
func (c *Changes) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, uid)
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
