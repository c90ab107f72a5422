// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	informers "k8s.io/client-go/informers/admissionregistration/v1"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
)

// List returns all configured webhooks, in the order in which they are called.
func (b *Book) List(configured informers.Interface) ([]webhookhealth.Webhook, error) {
	var out []webhookhealth.Webhook
	add := func(kind, configuration, name string, at admissionregistrationv1.WebhookClientConfig,
		policy *admissionregistrationv1.FailurePolicyType, timeout *int32) {
		w := webhookhealth.Webhook{Type: kind, Configuration: configuration, Name: name, URL: endpoint(at)}
		if policy != nil {
			w.FailurePolicy = string(*policy)
		}
		if timeout != nil {
			w.TimeoutSeconds = *timeout
		}
		w.Health = b.health(w.URL)
		out = append(out, w)
	}
	mutating, err := configured.MutatingWebhookConfigurations().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, c := range mutating {
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			add("Mutating", c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.TimeoutSeconds)
		}
	}
	validating, err := configured.ValidatingWebhookConfigurations().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, c := range validating {
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			add("Validating", c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.TimeoutSeconds)
		}
	}
	slices.SortStableFunc(out, func(x, y webhookhealth.Webhook) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Configuration, y.Configuration))
	})
	return out, nil
}

// endpoint returns the URL of a webhook in the form in which a caller records it.
func endpoint(c admissionregistrationv1.WebhookClientConfig) string {
	if c.Service == nil {
		if c.URL == nil {
			return ""
		}
		u, err := url.Parse(*c.URL)
		if err != nil {
			return *c.URL
		}
		return u.Scheme + "://" + u.Host + path.Join("/", u.Path)
	}
	port, at := 443, "/"
	if c.Service.Port != nil {
		port = int(*c.Service.Port)
	}
	if c.Service.Path != nil {
		at = path.Join("/", *c.Service.Path)
	}
	return "https://" + net.JoinHostPort(c.Service.Name+"."+c.Service.Namespace+".svc", strconv.Itoa(port)) + at
}

// Handler serves a webhookhealth.Document with all webhooks.
func (b *Book) Handler(configured informers.Interface) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list, err := b.List(configured)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(webhookhealth.Document{Webhooks: list})
	})
}

// Collector returns a collector that exports the health of webhooks' endpoints as metrics.
func (b *Book) Collector() prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("keelson_admission_webhook_"+name, help, []string{"url"}, nil)
	}
	return &collector{
		book: b,
		open: desc("circuit_open",
			"1 for a webhook that is failing, so that requests of nodes and of the control plane bypass it; otherwise 0."),
		row:    desc("consecutive_failures", "Failed calls of a webhook since its last valid answer."),
		calls:  desc("calls_total", "Calls of a webhook, including those that only test whether it works again."),
		failed: desc("failures_total", "Calls of a webhook that failed."),
		passed: desc("passed_over_total", "Requests that bypassed a failing webhook."),
	}
}

type collector struct {
	book                             *Book
	open, row, calls, failed, passed *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.open, c.row, c.calls, c.failed, c.passed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for url, h := range c.book.all() {
		open := 0.0
		if h.State != webhookhealth.Closed {
			open = 1
		}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, url)
		}
		counter := func(d *prometheus.Desc, v uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), url)
		}
		gauge(c.open, open)
		gauge(c.row, float64(h.ConsecutiveFailures))
		counter(c.calls, h.Calls)
		counter(c.failed, h.Failures)
		counter(c.passed, h.PassedOver)
	}
}

// all returns the health of all webhook endpoints in the book, by URL.
func (b *Book) all() map[string]webhookhealth.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]webhookhealth.Health, len(b.circuits))
	for url, c := range b.circuits {
		out[url] = c.health()
	}
	return out
}
