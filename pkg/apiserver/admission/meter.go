// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
)

// meters has Kubernetes' metrics of the latency of plugins and of the whole chain. It replaces the
// metrics of the library, which look up labels for each call. That takes longer than most of the
// two dozen plugins.
type meters struct {
	clock      clock.Clock
	controller *prometheus.HistogramVec
	step       *prometheus.HistogramVec
	summary    *prometheus.SummaryVec
}

// newMeters registers the metrics with r. If r is nil, they are not exported.
func newMeters(clk clock.Clock, r prometheus.Registerer) (*meters, error) {
	const namespace, subsystem = "apiserver", "admission"
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}
	labels := []string{"type", "operation", "rejected"}
	m := &meters{
		clock: clk,
		controller: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "controller_admission_duration_seconds", Buckets: buckets,
			Help: "[STABLE] Admission controller latency histogram in seconds, identified by name and " +
				"broken out for each operation and API resource and type (validate or admit).",
		}, append([]string{"name"}, labels...)),
		step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "step_admission_duration_seconds", Buckets: buckets,
			Help: "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation " +
				"and API resource and step type (validate or admit).",
		}, labels),
		summary: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "step_admission_duration_seconds_summary",
			Help: "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and " +
				"API resource and step type (validate or admit).",
		}, labels),
	}
	if r == nil {
		return m, nil
	}
	if err := errors.Join(r.Register(m.controller), r.Register(m.step), r.Register(m.summary)); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// plugin returns p with metrics of its latency.
func (m *meters) plugin(p admission.Interface, name string) admission.Interface {
	out := newMetered(p, m.clock, func(labels ...string) []prometheus.Observer {
		return []prometheus.Observer{m.controller.WithLabelValues(append([]string{name}, labels...)...)}
	})
	out.webhooks = name == mutatingwebhook.PluginName || name == validatingwebhook.PluginName
	return out
}

// all returns the chain with metrics of its latency.
func (m *meters) all(chain admission.Interface) *metered {
	return newMetered(chain, m.clock, func(labels ...string) []prometheus.Observer {
		return []prometheus.Observer{m.step.WithLabelValues(labels...), m.summary.WithLabelValues(labels...)}
	})
}

// metered is a plugin, or the whole chain, with metrics of its latency.
type metered struct {
	admission.Interface
	mutating   admission.MutationInterface   // nil if the plugin does not mutate
	validating admission.ValidationInterface // nil if the plugin does not validate
	clock      clock.Clock
	admit      meter
	validate   meter
	// If webhooks is true, the latency is also recorded as time that the request spent in webhooks.
	webhooks bool
	// resources are the only ones for which the plugin does something; nil means all. Requests for others
	// are not measured.
	resources []schema.GroupResource
}

func newMetered(p admission.Interface, clk clock.Clock,
	observers func(labels ...string) []prometheus.Observer) *metered {
	m := &metered{Interface: p, clock: clk, admit: meter{step: "admit", observers: observers},
		validate: meter{step: "validate", observers: observers}}
	m.mutating, _ = p.(admission.MutationInterface)
	m.validating, _ = p.(admission.ValidationInterface)
	if limited, ok := p.(interface{ resources() []schema.GroupResource }); ok {
		m.resources = limited.resources()
	}
	return m
}

// Admit calls the plugin's Admit and records the latency.
func (m *metered) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.mutating == nil || m.skips(a) {
		return nil
	}
	begin := m.clock.Now()
	err := m.mutating.Admit(ctx, a, o)
	m.observe(ctx, &m.admit, m.clock.Since(begin), a, err)
	return err
}

// Validate calls the plugin's Validate and records the latency.
func (m *metered) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.validating == nil || m.skips(a) {
		return nil
	}
	begin := m.clock.Now()
	err := m.validating.Validate(ctx, a, o)
	m.observe(ctx, &m.validate, m.clock.Since(begin), a, err)
	return err
}

// skips reports whether the plugin does nothing for the request.
func (m *metered) skips(a admission.Attributes) bool {
	return m.resources != nil && !slices.Contains(m.resources, a.GetResource().GroupResource())
}

func (m *metered) observe(ctx context.Context, by *meter, took time.Duration, a admission.Attributes, err error) {
	by.observe(took, a.GetOperation(), err != nil)
	if m.webhooks {
		registry.AddWebhookTime(ctx, took)
	}
}

// meter has the metrics of one phase: "admit" or "validate". The metrics of an operation are
// created when they are first needed.
type meter struct {
	step      string
	observers func(labels ...string) []prometheus.Observer
	// made has the metrics by operation (see indexOf), and by whether the request was rejected (1) or
	// not (0).
	made [4][2]atomic.Pointer[[]prometheus.Observer]
}

func (m *meter) observe(took time.Duration, op admission.Operation, rejected bool) {
	of := &m.made[indexOf(op)][0]
	if rejected {
		of = &m.made[indexOf(op)][1]
	}
	to := of.Load()
	if to == nil {
		made := m.observers(m.step, string(op), strconv.FormatBool(rejected))
		to = &made
		of.Store(to)
	}
	for _, o := range *to {
		o.Observe(took.Seconds())
	}
}

func indexOf(op admission.Operation) int {
	switch op {
	case admission.Create:
		return 0
	case admission.Update:
		return 1
	case admission.Delete:
		return 2
	}
	return 3 // admission.Connect
}
