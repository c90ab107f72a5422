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

// maxEndpoints is how many endpoints are remembered. Beyond it those that have
// no failures are forgotten, and then any.
const maxEndpoints = 2048

// Book has the health of every endpoint that has been called.
type Book struct {
	clock clock.Clock
	log   *slog.Logger

	nobody *authority

	mu       sync.Mutex
	circuits map[string]*circuit // by URL, without its query
}

// NewBook returns an empty Book.
func NewBook(clk clock.Clock, log *slog.Logger) (*Book, error) {
	nobody, err := newAuthority()
	return &Book{clock: clk, log: log, nobody: nobody, circuits: make(map[string]*circuit)}, err
}

// Wrap has webhooks called by way of the book.
func (b *Book) Wrap(of webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	kept := func(namespace string, c *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			if b.nobody.signs(next) {
				next = unreadable{}
			}
			return &caller{book: b, namespace: namespace, next: next}
		})
		return c, nil
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
			c, err := of.ClientConfigFor(hostPort)
			return kept("", c, err)
		},
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			c, err := of.ClientConfigForService(name, namespace, port)
			return kept(namespace, c, err)
		},
	}
}

// circuit is that of an endpoint, made when it is first called.
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

// forget makes room. b.mu is held.
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

// health is that of an endpoint; all zero but for its state when it has not been called.
func (b *Book) health(url string) webhookhealth.Health {
	b.mu.Lock()
	c := b.circuits[url]
	b.mu.Unlock()
	if c == nil {
		return webhookhealth.Health{State: webhookhealth.Closed}
	}
	return c.health()
}

// review is what is known of the request on whose account a webhook is called.
type review struct {
	attributes admission.Attributes
	ctx        context.Context // the request's own, which outlives the webhook's time
}

type reviewKey struct{}

// For tells callers below ctx which request is being reviewed.
func For(ctx context.Context, a admission.Attributes) context.Context {
	return context.WithValue(ctx, reviewKey{}, &review{a, ctx})
}
