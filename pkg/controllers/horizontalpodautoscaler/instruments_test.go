// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestInstruments checks the labels of the counters of reconciliations and computations.
func TestInstruments(t *testing.T) {
	r := prometheus.NewRegistry()
	i, spec := newInstruments(r), fmt.Errorf("target: %w", specError{errors.New("invalid version")})
	i.reconciled("none", nil, time.Second)
	i.reconciled("scale_up", nil, time.Second)
	i.reconciled("none", spec, time.Second)
	i.reconciled("none", errors.New("no scale"), time.Second)
	i.computed(autoscalingv2.PodsMetricSourceType, 3, 2, nil, time.Second)
	i.computed(autoscalingv2.PodsMetricSourceType, 3, 3, nil, time.Second)
	i.computed(autoscalingv2.PodsMetricSourceType, 3, 0, errors.New("no value"), time.Second)
	i.computed("other", 3, 0, spec, time.Second)
	want := map[string]float64{
		"reconciliations_total{action=none,error=none}":                           1,
		"reconciliations_total{action=scale_up,error=none}":                       1,
		"reconciliations_total{action=none,error=spec}":                           1,
		"reconciliations_total{action=none,error=internal}":                       1,
		"metric_computation_total{action=scale_down,error=none,metric_type=Pods}": 1,
		"metric_computation_total{action=none,error=none,metric_type=Pods}":       1,
		"metric_computation_total{action=none,error=internal,metric_type=Pods}":   1,
		"metric_computation_total{action=none,error=spec,metric_type=other}":      1,
		"num_horizontal_pod_autoscalers":                                          0,
	}
	got := map[string]float64{}
	for name, value := range controllertest.Metrics(t, r) {
		if name, own := strings.CutPrefix(name, "horizontal_pod_autoscaler_controller_"); own &&
			!strings.Contains(name, "duration") {
			got[name] = value
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
