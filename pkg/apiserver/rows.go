// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/api/certificates"
	"keelson.dev/keelson/pkg/api/core"
	"keelson.dev/keelson/pkg/api/podbatches"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/apiserver/admission"
	"keelson.dev/keelson/pkg/apiserver/connect"
	"keelson.dev/keelson/pkg/apiserver/customresources"
	"keelson.dev/keelson/pkg/apiserver/filters"
	"keelson.dev/keelson/pkg/apiserver/pods"
	"keelson.dev/keelson/pkg/apiserver/rbac"
	"keelson.dev/keelson/pkg/apiserver/reviews"
)

// buildRows builds the kind table. Nothing changes its rows afterwards.
func (a *assembly) buildRows() error {
	if err := a.reachKubelets(); err != nil {
		return err
	}
	a.proxies = connect.NewProxies(a.self.client, a.kubelets, a.authz, a.cfg.Serving.MaxConnectionBytes, newRand())
	a.close = append(a.close, a.proxies.Close)
	a.certificates = newCertificateMetrics(a.server.deps.Metrics)
	var err error
	a.rows, err = a.newRows()
	return err
}

// newRows returns the rows of the kind table that this server serves.
func (a *assembly) newRows() ([]*resource.Row, error) {
	return api.Served(a.cfg.RuntimeConfig, a.scheme, a.rowDeps())
}

// rowDeps returns the dependencies of the functions in the kind table.
func (a *assembly) rowDeps() api.Deps {
	client := a.self.client
	access := &reviews.Access{Authorizer: a.authz, Rules: a.ruleSource}
	identity := &reviews.Identity{Requests: a.authn, Audiences: a.audiences, Clock: a.server.deps.Clock}
	return api.Deps{
		Emulated:       a.cfg.Features.Emulated,
		Enabled:        a.cfg.Features.Enabled,
		Core:           a.coreDeps(),
		Authentication: identity.Rows(),
		Authorization:  access.Rows(),
		Certificates: certificates.Deps{Requests: a.certificates.hooks(),
			MaySign: (&admission.SignerGuard{Authorizer: a.authz}).MaySign},
		CheckEscalation: (&rbac.Guard{Rules: a.rules, Authorizer: a.authz}).CheckWrite,
		CheckParams:     (&admission.ParamGuard{Authorizer: a.authz, Mapper: a.mapper, Client: client}).Check,
		Definitions:     customresources.Hooks(),
		Claims:          &admission.DeviceGuard{Authorizer: a.authz, Client: client},
		Batches:         a.batches(),
	}
}

func (a *assembly) coreDeps() core.Deps {
	client, clk := a.self.client, a.server.deps.Clock
	binder := &pods.Binder{Registry: a.registry(corev1.Resource("pods")), Clock: clk}
	evicter := &pods.Evicter{Registry: binder.Registry, Client: client, Clock: clk}
	tokens := &reviews.Tokens{
		Issuer: a.server.issuer, Client: client, Audiences: a.audiences,
		MaxExpiry: a.server.maxExpiry(), Extend: a.cfg.ExtendTokenExpiration, MaxExtended: a.server.signerMax(), Clock: clk,
	}
	streams := &connect.Pods{
		Client: client, Kubelets: a.kubelets, Authorizer: a.authz, Clock: clk,
		MaxBytesPerSecond: a.cfg.Serving.MaxConnectionBytes,
	}
	return core.Deps{
		Policy:   podspec.Policy{NoPrivileged: !a.cfg.AllowPrivileged},
		Services: a.services,
		Bindings: binder.Collection(),
		Pods: core.PodConnectors{
			Binding: binder.Creator(), Eviction: evicter.Creator(),
			Attach: streams.Attach, Exec: streams.Exec, Log: streams.Log, PortForward: streams.PortForward,
			Proxy: a.proxies.Pods(),
		},
		PodCreated: a.server.podCreated(),
		Tokens:     tokens.Creator(),
		NodeProxy:  a.proxies.Nodes(), ServiceProxy: a.proxies.Services(),
	}
}

// registry returns a function that returns the registry of a resource. The function can be called
// only after buildAPI.
func (a *assembly) registry(gr schema.GroupResource) func() *registry.Registry {
	return func() *registry.Registry { return a.api.Registry(gr) }
}

// store returns a function that returns the store of a resource. The function can be called only
// after buildAPI.
func (a *assembly) store(gr schema.GroupResource) func() store.Reader {
	return func() store.Reader { return a.api.Registry(gr).Store() }
}

// reachKubelets sets up the connections to kubelets.
func (a *assembly) reachKubelets() error {
	policy, err := a.cfg.Transport.Outbound()
	if err != nil {
		return err
	}
	a.kubelets, err = connect.NewKubelets(connect.KubeletConfig{
		CertFile: a.cfg.KubeletClientCert, KeyFile: a.cfg.KubeletClientKey,
		CAFile: a.cfg.KubeletCAFile, AddressTypes: a.cfg.KubeletAddressTypes, Outbound: policy,
		Clock: a.server.deps.Clock,
	}, a.self.client)
	if err != nil {
		return fmt.Errorf("problem initializing API group %q: %w", corev1.GroupName, err)
	}
	a.close = append(a.close, a.kubelets.Close)
	return nil
}

// batches returns the handlers of BindingBatch and VerdictBatch, by which a scheduler binds many
// pods, or reports many pods as unschedulable, in one request.
func (a *assembly) batches() podbatches.Deps {
	b := &pods.Batch{
		Binder:    &pods.Binder{Registry: a.registry(corev1.Resource("pods")), Clock: a.server.deps.Clock},
		Events:    a.registry(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}),
		Admission: a.admission, Scheme: a.scheme, Authorizer: a.authz,
	}
	if log := a.server.audit; log != nil {
		b.Audit = &filters.Audit{Policy: log.Policy, Sink: log.Sink}
	}
	return podbatches.Deps{Bindings: b.Bindings, Verdicts: b.Verdicts}
}
