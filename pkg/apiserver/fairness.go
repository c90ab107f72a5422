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

// fairnessPath is where the state of flow control can be looked at.
const fairnessPath = "/debug/api_priority_and_fairness/"

// buildFairness makes what shares the server between requests, if it is to be shared.
func (a *assembly) buildFairness() {
	limit := a.cfg.MaxReads + a.cfg.MaxWrites
	if !a.cfg.PriorityAndFairness || limit <= 0 {
		return
	}
	flowmetrics.Register() // once in a process: the library's metrics are its own
	a.fairness = &filters.Fairness{
		Controller: flowcontrol.New(a.self.informers, a.self.client.FlowcontrolV1(), limit),
		Objects:    func(resource string) (int64, int64, bool) { return a.objects(schema.ParseGroupResource(resource)) },
	}
}

// objects is how many objects of a resource are known, and of how many bytes.
func (a *assembly) objects(gr schema.GroupResource) (objects, bytes int64, ok bool) {
	stats, ok := a.stats(gr)
	return int64(stats.Objects), int64(stats.Bytes), ok
}

// stats is what the store of a resource knows, once somebody has used it.
func (a *assembly) stats(gr schema.GroupResource) (stats store.Stats, ok bool) {
	r := a.api.Registry(gr)
	if r == nil {
		return stats, false
	}
	stats = r.Store().Stats()
	return stats, stats.Started
}

// runFairness follows the configuration of flow control until ctx is done.
func (a *assembly) runFairness(ctx context.Context) {
	if a.fairness == nil {
		return
	}
	if err := a.fairness.Controller.Run(ctx.Done()); err != nil {
		a.server.log.Error("Flow control ended", "err", err)
	}
}

// fairnessDebug answers below fairnessPath.
func (a *assembly) fairnessDebug() http.Handler {
	m := servermux.NewPathRecorderMux("flowcontrol")
	a.fairness.Controller.Install(m)
	return m
}
