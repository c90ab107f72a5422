// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
)

// maxEndpoints is the maximum number of webhook endpoints in a Book. When it is reached, endpoints
// without failures are removed, and then others if needed.
const maxEndpoints = 2048

// Book has the health of all webhook endpoints that have been called. It is safe for concurrent
// use.
type Book struct {
	clock clock.Clock
	log   *slog.Logger

	nobody *authority

	mu       sync.Mutex
	circuits map[string]*circuit // by the webhook's URL without its query
}

// NewBook returns an empty Book.
func NewBook(clk clock.Clock, log *slog.Logger) (*Book, error) {
	nobody, err := newAuthority()
	return &Book{clock: clk, log: log, nobody: nobody, circuits: make(map[string]*circuit)}, err
}

// Wrap returns a resolver that returns the same configurations as the given one, but with
// transports that record the outcome of calls in the book and skip failing webhooks. The transports
// also resolve the webhooks' services, with the resolver services; the library that calls the
// webhooks must get the resolver ByName instead.
func (b *Book) Wrap(of webhook.AuthenticationInfoResolver,
	services webhook.ServiceResolver) webhook.AuthenticationInfoResolver {
	kept := func(s *service, c *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			if b.nobody.signs(next) {
				next = unreadable{}
			} else if s != nil {
				next = &resolving{service: *s, services: services, next: next}
			}
			call := &caller{book: b, next: next}
			if s != nil {
				call.namespace = s.namespace
			}
			return call
		})
		return c, nil
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
			c, err := of.ClientConfigFor(hostPort)
			return kept(nil, c, err)
		},
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			c, err := of.ClientConfigForService(name, namespace, port)
			return kept(&service{namespace, name, int32(port)}, c, err)
		},
	}
}

// circuit returns the circuit of a webhook's endpoint, which is its health. It creates the circuit
// if needed.
func (b *Book) circuit(url string) *circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[url]
	if c != nil {
		return c
	}
	if len(b.circuits) >= maxEndpoints {
		b.forget()
	}
	c = &circuit{}
	b.circuits[url] = c
	return c
}

// forget removes the health of all webhook endpoints without consecutive failures, and others until
// there is room for one more. The caller holds b.mu.
func (b *Book) forget() {
	for url, c := range b.circuits {
		if c.health().ConsecutiveFailures == 0 {
			delete(b.circuits, url)
		}
	}
	for url := range b.circuits {
		if len(b.circuits) < maxEndpoints {
			return
		}
		delete(b.circuits, url)
	}
}

// health returns the health of a webhook's endpoint. An endpoint that has not been called has state
// Closed and zero counts.
func (b *Book) health(url string) webhookhealth.Health {
	b.mu.Lock()
	c := b.circuits[url]
	b.mu.Unlock()
	if c == nil {
		return webhookhealth.Health{State: webhookhealth.Closed}
	}
	return c.health()
}

// review is the API request for which a webhook is called.
type review struct {
	attributes admission.Attributes
	ctx        context.Context // context of the API request; the context of the call also ends with the webhook's timeout
}

type reviewKey struct{}

// For returns a context that contains the API request for which webhooks are called. The HTTP
// transports that Wrap returns read the request from the context.
func For(ctx context.Context, a admission.Attributes) context.Context {
	return context.WithValue(ctx, reviewKey{}, &review{a, ctx})
}
