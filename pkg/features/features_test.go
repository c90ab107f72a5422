// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/features"
)

// TestMetric checks that the metric has every feature in the list.
func TestMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := features.Register(registry, &features.Options{}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name, stage, on := regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`), regexp.MustCompile(`^(ALPHA|BETA|DEPRECATED|)$`), 0
	for _, m := range families[0].GetMetric() {
		labels := m.GetLabel()
		if !name.MatchString(labels[0].GetValue()) || !stage.MatchString(labels[1].GetValue()) {
			t.Errorf("no feature: %v", labels)
		}
		if m.GetGauge().GetValue() == 1 {
			on++
		} else if labels[1].GetValue() == "" {
			t.Errorf("%s is for everybody, and not enabled", labels[0].GetValue())
		}
	}
	if all := len(families[0].GetMetric()); all < 100 || on == 0 || on == all {
		t.Errorf("%d features, %d enabled", all, on)
	}
}
