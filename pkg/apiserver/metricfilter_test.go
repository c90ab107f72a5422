// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// TestMetricFilter checks that disabled metrics are removed, and that series whose label values are
// not allowed are merged into one.
func TestMetricFilter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "labels.yaml")
	if err := os.WriteFile(file, []byte(`"seconds,verb": "GET"`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests"}, []string{"verb", "code"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1}},
		[]string{"verb"})
	off := prometheus.NewCounter(prometheus.CounterOpts{Name: "off"})
	replaced := prometheus.NewCounter(prometheus.CounterOpts{Name: categorizations})
	r.MustRegister(requests, seconds, off, replaced)
	for _, verb := range []string{"GET", "PUT", "POST"} {
		requests.WithLabelValues(verb, "200").Inc()
		seconds.WithLabelValues(verb).Observe(0.5)
	}
	filter, err := newMetricFilter(&config.Metrics{Disabled: []string{"off"},
		AllowLabels: map[string]string{"requests,verb": "GET,LIST"}, AllowLabelsFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // filtering must not change the registry
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, f := range filter.apply(families) {
			if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
				t.Fatal(err)
			}
		}
		const want = `# TYPE cardinality_enforcement_unexpected_categorizations_total counter
cardinality_enforcement_unexpected_categorizations_total 4
# TYPE requests counter
requests{code="200",verb="GET"} 1
requests{code="200",verb="unexpected"} 2
# TYPE seconds histogram
seconds_bucket{verb="GET",le="1"} 1
seconds_bucket{verb="GET",le="+Inf"} 1
seconds_sum{verb="GET"} 0.5
seconds_count{verb="GET"} 1
seconds_bucket{verb="unexpected",le="1"} 2
seconds_bucket{verb="unexpected",le="+Inf"} 2
seconds_sum{verb="unexpected"} 1
seconds_count{verb="unexpected"} 2
`
		var lines []string
		for l := range strings.Lines(out.String()) {
			if !strings.HasPrefix(l, "# HELP") {
				lines = append(lines, l)
			}
		}
		if got := strings.Join(lines, ""); got != want {
			t.Errorf("filtered:\n%s", got)
		}
	}
	if err := os.WriteFile(file, []byte("seconds: GET"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newMetricFilter(&config.Metrics{AllowLabelsFile: file}); err == nil ||
		!strings.Contains(err.Error(), `invalid allow list mapping in manifest: `+
			`[metrics.allowListMappingManifest: Invalid value: {"seconds":"GET"}: must have keys`) {
		t.Errorf("a metric without label: %v", err)
	}
	const want = `metrics.allowListMappingManifest: Invalid value: "/none": failed to read allow list ` +
		`manifest: open /none: no such file or directory`
	if _, err := newMetricFilter(&config.Metrics{AllowLabelsFile: "/none"}); err == nil || err.Error() != want {
		t.Errorf("a file that is not there: %v, want %s", err, want)
	}
}

// TestEgress checks that a configuration with a proxy is rejected.
func TestEgress(t *testing.T) {
	dir := t.TempDir()
	for selections, want := range map[string]string{
		"[{name: cluster, connection: {proxyProtocol: Direct}}]": "",
		"[{name: cluster, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /x}}}}]": `egress ` +
			`selection "cluster" has proxyProtocol GRPC, which is not supported: connections are Direct`,
		"[{name: foo, connection: {proxyProtocol: Direct}}]": `failed to validate egress selector configuration: ` +
			`service.connection: Unsupported value: ` +
			`"foo": supported values: "cluster", "controlplane", "etcd"`,
	} {
		file := filepath.Join(dir, "egress.yaml")
		if err := os.WriteFile(file,
			[]byte(
				"apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: "+
					selections), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := checkEgress(file); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", selections, got, want)
		}
	}
	const want = `failed to read egress selector config: unable to read egress selector configuration from ` +
		`"/none" [open /none: no such file or directory]`
	if err := checkEgress("/none"); err == nil || err.Error() != want {
		t.Errorf("a file that is not there: %v, want %s", err, want)
	}
}
