// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	servermux "k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	flowmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"

	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/apiserver/filters"
)

// fairnessPath is the prefix of the debug pages of priority and fairness.
const fairnessPath = "/debug/api_priority_and_fairness/"

// buildFairness sets up priority and fairness if it is enabled.
func (a *assembly) buildFairness() {
	limit := a.cfg.MaxReads + a.cfg.MaxWrites
	if !a.cfg.PriorityAndFairness || limit <= 0 {
		return
	}
	flowmetrics.Register() // may be called again; the library's metrics are global
	a.fairness = &filters.Fairness{
		Controller: flowcontrol.New(a.self.informers, a.self.client.FlowcontrolV1(), limit),
		Objects:    func(resource string) (int64, int64, bool) { return a.objects(schema.ParseGroupResource(resource)) },
	}
}

// objects returns the number and total size of the cached objects of a resource.
func (a *assembly) objects(gr schema.GroupResource) (objects, bytes int64, ok bool) {
	stats, ok := a.stats(gr)
	return int64(stats.Objects), int64(stats.Bytes), ok
}

// stats returns the statistics of the cache of a resource. ok is false if nothing has used the
// cache.
func (a *assembly) stats(gr schema.GroupResource) (stats store.Stats, ok bool) {
	r := a.api.Registry(gr)
	if r == nil {
		return stats, false
	}
	stats = r.Store().Stats()
	return stats, stats.Started
}

// runFairness applies changes of the flow control configuration until ctx is done.
func (a *assembly) runFairness(ctx context.Context) {
	if a.fairness == nil {
		return
	}
	if err := a.fairness.Controller.Run(ctx.Done()); err != nil {
		a.server.log.Error("Priority and fairness controller stopped", "err", err)
	}
}

// fairnessDebug serves the pages below fairnessPath.
func (a *assembly) fairnessDebug() http.Handler {
	m := servermux.NewPathRecorderMux("flowcontrol")
	a.fairness.Controller.Install(m)
	return m
}
