// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/keelson/pkg/api/openapi"
	"keelson.dev/keelson/pkg/apiserver/admission"
	"keelson.dev/keelson/pkg/apiserver/customresources"
)

// newCustomResources returns the controller that serves custom resources.
func (a *assembly) newCustomResources() (*customresources.Controller, error) {
	services, err := admission.Resolver(a.self.informers, a.cfg.AggregatorRouting)
	if err != nil {
		return nil, err
	}
	policy, err := a.cfg.Transport.Outbound()
	if err != nil {
		return nil, err
	}
	converters, err := conversion.NewCRConverterFactory(services, admission.Callers(policy, a.server.tracing))
	if err != nil {
		return nil, fmt.Errorf("conversion of custom resources: %w", err)
	}
	return customresources.New(customresources.Config{
		API: a.api, Own: ownVersions(a.rows), Scheme: a.scheme, Store: a.stores.custom, Converters: converters,
		OpenAPI: openapi.Source{},
		Clock:   a.server.deps.Clock, Log: a.server.log,
	}), nil
}

// arrived reports whether gr, which is not served yet, has a definition. If it has one, arrived
// first waits until gr is served.
func (a *assembly) arrived(ctx context.Context, gr schema.GroupResource) bool {
	return a.custom.Arrived(ctx, gr)
}
