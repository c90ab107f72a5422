// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// gather returns the metrics in r as texts of the form "name[label values] value".
func gather(t *testing.T, r prometheus.Gatherer) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s%v %v", f.GetName(), labels, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	for name, tc := range map[string]struct {
		changes []change
		pods    string
		want    []string
	}{
		"in an update": {[]change{parallel, maxUnavailable("50%")},
			"0:ready:old 1:ready:old 2:going:old 3:pending:new", []string{
				"statefulset_controller_statefulset_max_unavailable[Parallel sts sets] 2",
				"statefulset_controller_statefulset_unavailable_replicas[Parallel sts sets] 2",
			}},
		"before it comes to that": {nil, "0:pending:new",
			[]string{"statefulset_controller_statefulset_max_unavailable[OrderedReady sts sets] 1"}},
		"on delete": {[]change{onDelete}, "0:ready:old 1:ready:old 2:ready:old 3:ready:old",
			[]string{"statefulset_controller_statefulset_max_unavailable[OrderedReady sts sets] 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := setOf(4, tc.changes...)
			set.Namespace, set.Name = "sets", "sts"
			if set.Spec.PodManagementPolicy == "" {
				set.Spec.PodManagementPolicy = "OrderedReady"
			}
			p, err := decide(stateOf(set, tc.pods))
			if err != nil {
				t.Fatal(err)
			}
			r := prometheus.NewRegistry()
			m := newMetrics(r)
			m.recordPlan(set, p)
			if got := gather(t, r); !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
			m.forget(set.Namespace, set.Name)
			if got := gather(t, r); len(got) > 0 {
				t.Errorf("metrics of a deleted set: %q", got)
			}
			m.skip(v1.Resource("pods"))
			if got := gather(t, r); !slices.Equal(got, []string{"statefulset_controller_stale_sync_skips_total[ pods] 1"}) {
				t.Errorf("%q", got)
			}
		})
	}
}
