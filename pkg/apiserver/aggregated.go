// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/apiserver/admission"
	"keelson.dev/keelson/pkg/apiserver/aggregation"
	"keelson.dev/keelson/pkg/apiserver/resourcemetrics"
)

// groupVersions returns all served group versions: the server's own and those of extension servers.
func (a *assembly) groupVersions() []schema.GroupVersion {
	list := a.api.GroupVersions()
	for _, g := range a.aggregator.Groups() {
		for _, v := range g.Versions {
			list = append(list, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	return list
}

// ownVersions returns the group versions of the resources in rows, one entry for each resource, so
// a group version can occur several times.
func ownVersions(rows []*resource.Row) (own []schema.GroupVersion) {
	for _, row := range rows {
		for _, v := range row.Versions {
			own = append(own, schema.GroupVersion{Group: row.Group, Version: v.Name})
		}
	}
	return own
}

// newAggregator returns the aggregator, which adds the APIs of extension servers to the server's
// own APIs.
func (a *assembly) newAggregator(rows []*resource.Row) (*aggregation.Aggregator, error) {
	services, err := admission.Resolver(a.self.informers, a.cfg.AggregatorRouting)
	if err != nil {
		return nil, err
	}
	policy, err := a.cfg.Transport.Outbound()
	if err != nil {
		return nil, err
	}
	served := map[schema.GroupVersion]http.Handler{}
	if a.cfg.ResourceMetrics {
		served[resourcemetrics.GroupVersion] = resourcemetrics.New(resourcemetrics.Config{
			Client: a.self.client, Kubelets: a.kubelets, Clock: a.server.deps.Clock,
		})
	}
	return aggregation.New(aggregation.Config{
		Served: served,
		Client: a.self.config, Informers: a.self.informers, Resolver: services, Own: ownVersions(rows),
		Outbound: policy, Tracing: a.server.tracing,
		CertFile: a.cfg.ProxyClientCert, KeyFile: a.cfg.ProxyClientKey, PassRedirects: a.cfg.PassRedirects,
		Clock: a.server.deps.Clock, Log: a.server.log, Metrics: a.server.deps.Metrics,
	})
}
