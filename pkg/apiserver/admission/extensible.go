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

	"keelson.dev/keelson/pkg/api/admissionregistration"
	"keelson.dev/keelson/pkg/apiserver/admission/webhooks"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/outbound"
)

// The plugins for user-defined webhooks and policies are those of the library k8s.io/apiserver.

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

// newBook creates the Book with the health of webhooks. It also makes the informers of webhook
// configurations replace unusable CA bundles (see Book.Readable).
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

// configured returns a function that reports whether there may be webhooks. It returns true if
// static files define webhooks, if the API has webhook configurations, or if these are not loaded
// yet. If it returns false, the library's plugins are not called: they would copy each object just
// to find no webhook.
func configured(configurations cache.SharedIndexInformer, static bool) func() bool {
	known := configurations.GetStore()
	return func() bool { return static || !configurations.HasSynced() || len(known.List()) > 0 }
}

// review reports whether a request is for a review, such as a TokenReview. Webhooks are not called
// for reviews: if a webhook did not answer, all components would be unable to authenticate and
// authorize clients.
func review(a admission.Attributes) bool {
	return slices.Contains(admissionregistration.Reviews(), a.GetResource().GroupResource())
}

// mutating calls mutating webhooks. It adds the request to the context, from which callers in
// package webhooks read it.
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

// validating calls validating webhooks. It adds the request to the context, from which callers in
// package webhooks read it.
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

// webhookInitializer returns the initializer that sets the service resolver and the transport of
// the webhook plugins.
func webhookInitializer(deps Deps, book *webhooks.Book) (admission.PluginInitializer, error) {
	r, err := Resolver(deps.Informers, deps.EndpointRouting)
	if err != nil {
		return nil, err
	}
	callers := Callers(deps.Outbound, deps.Tracing)
	kept := func(of webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return book.Wrap(callers(of), r)
	}
	return webhookinit.NewPluginInitializer(kept, webhooks.ByName{}), nil
}

// Callers returns a wrapper for the connections to webhooks. With it, webhooks are called only at
// addresses that policy p allows, redirects are not followed, and the size of answers is limited.
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

// direct returns no proxy. With an HTTP proxy, the policy could check only the address of the
// proxy.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

// Resolver returns a resolver for the services of webhooks. It returns their cluster IPs, or
// addresses of their endpoints if byEndpoints is true.
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
