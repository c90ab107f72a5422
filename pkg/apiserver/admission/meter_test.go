// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/apiserver/registry"
)

// slow is a plugin that advances a fake clock by one second.
type slow struct {
	*admission.Handler
	clock *testingclock.FakeClock
}

func (s slow) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	s.clock.Step(time.Second)
	return nil
}

// TestWebhookTime checks that only the latency of webhook plugins is recorded as time spent in
// webhooks.
func TestWebhookTime(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(0, 0))
	m, err := newMeters(clk, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{mutatingwebhook.PluginName: time.Second, "ServiceAccount": 0} {
		ctx := registry.WithUserAgent(t.Context(), "")
		p := m.plugin(slow{admission.NewHandler(admission.Create), clk}, name).(admission.MutationInterface)
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
			admission.Create, nil, false, nil)
		if err := p.Admit(ctx, a, nil); err != nil {
			t.Fatal(err)
		}
		if got := registry.WebhookTime(ctx); got != want {
			t.Errorf("%s took %v, want %v", name, got, want)
		}
	}
}

// limited is a plugin that deals only with pods.
type limited struct{ slow }

func (limited) resources() []schema.GroupResource { return []schema.GroupResource{{Resource: "pods"}} }

// TestOtherResources checks that a plugin is not called for resources with which it does not deal.
func TestOtherResources(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(0, 0))
	m, err := newMeters(clk, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := m.plugin(limited{slow{admission.NewHandler(admission.Create), clk}}, "x").(admission.MutationInterface)
	for resource, want := range map[string]time.Duration{"pods": time.Second, "secrets": 0} {
		begin := clk.Now()
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "",
			schema.GroupVersionResource{Resource: resource}, "", admission.Create, nil, false, nil)
		if err := p.Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if got := clk.Since(begin); got != want {
			t.Errorf("%s: the plugin took %v, want %v", resource, got, want)
		}
	}
}
