// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/apiserver/admission/webhooks"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/outbound"
)

// The library's plugins evaluate webhooks and policies of users.

func newMutatingPolicy(deps Deps) (admission.Interface, error) {
	return mutatingpolicy.NewPlugin(deps.settings)
}
func newValidatingPolicy(deps Deps) (admission.Interface, error) {
	return validatingpolicy.NewPlugin(deps.settings)
}
func newMutatingWebhook(deps Deps) (admission.Interface, error) {
	static := deps.settings != nil
	p, err := mutatingwebhook.NewMutatingWebhook(deps.settings)
	return &mutating{p, configured(
		deps.Informers.Admissionregistration().V1().MutatingWebhookConfigurations().Informer(), static)}, err
}
func newValidatingWebhook(deps Deps) (admission.Interface, error) {
	static := deps.settings != nil
	p, err := validatingwebhook.NewValidatingAdmissionWebhook(deps.settings)
	return &validating{p,
		configured(deps.Informers.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer(), static)}, err
}

// newBook creates the book of webhook health. It registers it with the informers of webhook
// configurations before other readers.
func newBook(deps Deps) (*webhooks.Book, error) {
	book, err := webhooks.NewBook(deps.Clock, deps.Log)
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	in := deps.Informers.Admissionregistration().V1()
	if err := errors.Join(
		in.MutatingWebhookConfigurations().Informer().SetTransform(book.Readable),
		in.ValidatingWebhookConfigurations().Informer().SetTransform(book.Readable),
	); err != nil {
		return nil, fmt.Errorf("configurations of webhooks: %w", err)
	}
	return book, nil
}

// configured reports whether there may be webhooks: either the configurations are not all loaded,
// or a webhook is configured in the API or in static files. The library's plugins would copy each
// object before they find that there are no webhooks.
func configured(configurations cache.SharedIndexInformer, static bool) func() bool {
	known := configurations.GetStore()
	return func() bool { return static || !configurations.HasSynced() || len(known.List()) > 0 }
}

// review reports whether a request is a review. Webhooks are not called for reviews: a webhook that
// does not answer would keep all components from authenticating and authorizing clients.
func review(a admission.Attributes) bool {
	return slices.Contains(reviews(), a.GetResource().GroupResource())
}

// mutating calls mutating webhooks, with the request in the context for the book.
type mutating struct {
	*mutatingwebhook.Plugin
	configured func() bool
}

// Admit calls the mutating webhooks.
func (p *mutating) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if !p.configured() || review(a) {
		return nil
	}
	return p.Plugin.Admit(webhooks.For(ctx, a), a, o)
}

// validating calls validating webhooks, with the request in the context for the book.
type validating struct {
	*validatingwebhook.Plugin
	configured func() bool
}

// Validate calls the validating webhooks.
func (p *validating) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if !p.configured() || review(a) {
		return nil
	}
	return p.Plugin.Validate(webhooks.For(ctx, a), a, o)
}

// webhookInitializer gives the webhook plugins their service resolver and transport.
func webhookInitializer(deps Deps, book *webhooks.Book) (admission.PluginInitializer, error) {
	r, err := Resolver(deps.Informers, deps.EndpointRouting)
	if err != nil {
		return nil, err
	}
	callers := Callers(deps.Outbound, deps.Tracing)
	kept := func(of webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return book.Wrap(callers(of))
	}
	return webhookinit.NewPluginInitializer(kept, r), nil
}

// Callers returns a wrapper that restricts how webhooks are called: only at addresses that the
// policy allows, without following redirects, and with a limit on the size of answers.
func Callers(p outbound.Policy, t *daemon.Tracing) webhook.AuthenticationInfoResolverWrapper {
	dialer := outbound.NewDialer(p)
	harden := func(c *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		t.Client(c)
		c.Wrap(outbound.NoRedirects)
		c.Wrap(webhooks.Bounded)
		if p.Restricts() {
			c.Dial = dialer.DialContext
			c.Proxy = direct
		}
		return c, nil
	}
	return func(of webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return harden(of.ClientConfigFor(hostPort)) },
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return harden(of.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

// direct disables proxies, because with a proxy the policy could check only the address of the
// proxy.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

// Resolver returns a resolver of the services of webhooks. It resolves them to their cluster IPs
// or, if byEndpoints is set, to their endpoints.
func Resolver(factory informers.SharedInformerFactory, byEndpoints bool) (webhook.ServiceResolver, error) {
	services := factory.Core().V1().Services()
	services.Informer()
	if !byEndpoints {
		return byCluster{services.Lister()}, nil
	}
	slices, err := proxy.NewEndpointSliceIndexerGetter(factory.Discovery().V1().EndpointSlices())
	if err != nil {
		return nil, fmt.Errorf("endpoints of webhooks: %w", err)
	}
	return byEndpoint{services.Lister(), slices}, nil
}

// byCluster resolves services to their cluster IPs.
type byCluster struct{ services corelisters.ServiceLister }

// ResolveEndpoint returns the cluster IP of a service.
func (r byCluster) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveCluster(r.services, namespace, name, port)
}

// byEndpoint resolves services to their endpoints.
type byEndpoint struct {
	services corelisters.ServiceLister
	slices   proxy.EndpointSliceGetter
}

// ResolveEndpoint returns the address of one endpoint of a service.
func (r byEndpoint) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveEndpoint(r.services, r.slices, namespace, name, port)
}
