// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/rest"
	"keelson.dev/keelson/pkg/apiserver/connect"
	"keelson.dev/keelson/pkg/apiserver/filters"
	"keelson.dev/keelson/pkg/apiserver/pods"
	"keelson.dev/keelson/pkg/apiserver/reviews"
)

// reachKubelets sets up how kubelets are reached.
func (a *assembly) reachKubelets() error {
	policy, err := a.cfg.Transport.Outbound()
	if err != nil {
		return err
	}
	a.kubelets, err = connect.NewKubelets(connect.KubeletConfig{
		CertFile: a.cfg.KubeletClientCert, KeyFile: a.cfg.KubeletClientKey,
		CAFile: a.cfg.KubeletCAFile, AddressTypes: a.cfg.KubeletAddressTypes, Outbound: policy,
	}, a.self.client)
	if err != nil {
		return fmt.Errorf("problem initializing API group %q: %w", corev1.GroupName, err)
	}
	a.close = append(a.close, a.kubelets.Close)
	return nil
}

// connectors are what answers beside the generic verbs.
func (a *assembly) connectors() map[string]rest.Connector {
	client, clk := a.self.client, a.server.deps.Clock
	proxies := connect.NewProxies(client, a.kubelets, a.authz, a.cfg.Serving.MaxConnectionBytes, newRand())
	a.close = append(a.close, proxies.Close)
	a.drivers = proxies.Drivers

	podRegistry := func() *registry.Registry { return a.api.Registry(schema.GroupResource{Resource: "pods"}) }
	binder := &pods.Binder{Registry: podRegistry, Clock: clk}
	evicter := &pods.Evicter{Registry: podRegistry, Client: client, Clock: clk}
	tokens := &reviews.Tokens{
		Issuer: a.server.issuer, Client: client, Audiences: a.audiences,
		MaxExpiry: a.server.maxExpiry(), Extend: a.cfg.ExtendTokenExpiration, MaxExtended: a.server.signerMax(), Clock: clk,
	}
	all := map[string]rest.Connector{
		"bindings":              binder.Collection(),
		"pods/binding":          binder.Connector(),
		"pods/eviction":         evicter.Connector(),
		"serviceaccounts/token": tokens.Connector(),
	}
	streams := &connect.Pods{
		Client: client, Kubelets: a.kubelets, Authorizer: a.authz, Clock: clk, MaxBytesPerSecond: a.cfg.Serving.MaxConnectionBytes,
	}
	identity := &reviews.Identity{Requests: a.authn, Audiences: a.audiences, Clock: clk}
	access := &reviews.Access{Authorizer: a.authz, Rules: a.ruleSource}
	for _, more := range []map[string]rest.Connector{
		streams.Connectors(), proxies.Connectors(), identity.Connectors(), access.Connectors(),
	} {
		maps.Copy(all, more)
	}
	return all
}

// batches do for many pods in one request what the scheduler has decided.
func (a *assembly) batches() map[string]http.HandlerFunc {
	of := func(gr schema.GroupResource) func() *registry.Registry {
		return func() *registry.Registry { return a.api.Registry(gr) }
	}
	b := &pods.Batch{
		Binder:    &pods.Binder{Registry: of(schema.GroupResource{Resource: "pods"}), Clock: a.server.deps.Clock},
		Events:    of(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}),
		Admission: a.admission, Scheme: a.scheme, Authorizer: a.authz,
	}
	if log := a.server.audit; log != nil {
		b.Audit = &filters.Audit{Policy: log.Policy, Sink: log.Sink}
	}
	return map[string]http.HandlerFunc{v1alpha1.BatchPath: b.Bindings, v1alpha1.VerdictPath: b.Verdicts}
}
