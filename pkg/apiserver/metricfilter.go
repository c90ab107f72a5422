// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/apiserver/config"
)

const (
	// unexpected replaces label values that the configuration does not allow.
	unexpected = "unexpected"
	// categorizations is the counter of measurements with a label value that was replaced by
	// unexpected. The library component-base registers the counter, but does not increase it. The
	// metricFilter replaces label values, and increases the counter, when metrics are scraped.
	categorizations = "cardinality_enforcement_unexpected_categorizations_total"
)

// metricFilter removes disabled metrics and label values that are not allowed. It is immutable.
type metricFilter struct {
	disabled sets.Set[string]
	labels   map[string]map[string]sets.Set[string] // allowed values by metric and label
}

// newMetricFilter returns the filter for cfg. It reads the allow list file of cfg, if there is one.
func newMetricFilter(cfg *config.Metrics) (*metricFilter, error) {
	allow := maps.Clone(cfg.AllowLabels)
	if allow == nil {
		allow = map[string]string{}
	}
	if cfg.AllowLabelsFile != "" {
		at := field.NewPath("metrics", "allowListMappingManifest")
		invalid := func(format string, err error) error {
			return field.Invalid(at, cfg.AllowLabelsFile, fmt.Errorf(format, err).Error())
		}
		data, err := os.ReadFile(filepath.Clean(cfg.AllowLabelsFile))
		if err != nil {
			return nil, invalid("failed to read allow list manifest: %w", err)
		}
		more := map[string]string{}
		if err := yaml.Unmarshal(data, &more); err != nil {
			return nil, invalid("failed to parse allow list manifest: %w", err)
		}
		if err := config.CheckLabels(at, more); err != nil {
			return nil, invalid("invalid allow list mapping in manifest: [%w]", err)
		}
		maps.Copy(allow, more)
	}
	m := &metricFilter{disabled: sets.New(cfg.Disabled...), labels: map[string]map[string]sets.Set[string]{}}
	for key, values := range allow {
		name, label, _ := strings.Cut(key, ",")
		if m.labels[name] == nil {
			m.labels[name] = map[string]sets.Set[string]{}
		}
		m.labels[name][label] = sets.New(strings.Split(values, ",")...)
	}
	return m, nil
}

// apply filters families in place and returns the remaining families.
func (m *metricFilter) apply(families []*dto.MetricFamily) []*dto.MetricFamily {
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return m.disabled.Has(f.GetName()) })
	replaced := 0.0
	for _, f := range families {
		if allowed := m.labels[f.GetName()]; allowed != nil {
			var n float64
			f.Metric, n = replaceUnexpected(f.GetMetric(), allowed)
			replaced += n
		}
	}
	for _, f := range families {
		if f.GetName() == categorizations && len(f.Metric) == 1 {
			f.Metric[0] = &dto.Metric{Counter: &dto.Counter{
				Value: proto.Float64(f.Metric[0].GetCounter().GetValue() + replaced)}}
		}
	}
	return families
}

// replaceUnexpected returns copies of metrics in which each label value that is not allowed is
// replaced by unexpected. Metrics whose labels are equal afterwards are merged. The second result
// is the number of measurements in the metrics that had a label value replaced (the function changes
// says what a measurement is). A metric with several replaced label values counts once for each.
func replaceUnexpected(metrics []*dto.Metric, allowed map[string]sets.Set[string]) ([]*dto.Metric, float64) {
	var out []*dto.Metric
	replaced := 0.0
	by := map[string]*dto.Metric{}
	for _, m := range metrics {
		key := ""
		labels := make([]*dto.LabelPair, 0, len(m.GetLabel()))
		for _, l := range m.GetLabel() {
			if values, ok := allowed[l.GetName()]; ok && !values.Has(l.GetValue()) {
				// l is shared with the registry, so replace it instead of changing it.
				l = &dto.LabelPair{Name: l.Name, Value: proto.String(unexpected)}
				replaced += changes(m)
			}
			labels = append(labels, l)
			key += l.GetName() + "\x00" + l.GetValue() + "\x00"
		}
		if same := by[key]; same != nil {
			merge(same, m)
			continue
		}
		m = proto.CloneOf(m)
		m.Label = labels
		by[key] = m
		out = append(out, m)
	}
	return out, replaced
}

// changes returns the number of measurements in m. This is the value of a counter, the number of
// observations of a summary or histogram, and 1 for a gauge or a metric without a type.
func changes(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Summary != nil:
		return float64(m.Summary.GetSampleCount())
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return 1
}

// merge adds the counts of b to a.
func merge(a, b *dto.Metric) {
	switch {
	case a.Counter != nil:
		a.Counter.Value = proto.Float64(a.Counter.GetValue() + b.Counter.GetValue())
	case a.Gauge != nil:
		a.Gauge.Value = proto.Float64(a.Gauge.GetValue() + b.Gauge.GetValue())
	case a.Untyped != nil:
		a.Untyped.Value = proto.Float64(a.Untyped.GetValue() + b.Untyped.GetValue())
	case a.Summary != nil:
		a.Summary.SampleCount = proto.Uint64(a.Summary.GetSampleCount() + b.Summary.GetSampleCount())
		a.Summary.SampleSum = proto.Float64(a.Summary.GetSampleSum() + b.Summary.GetSampleSum())
		a.Summary.Quantile = nil // quantiles cannot be merged
	case a.Histogram != nil:
		a.Histogram.SampleCount = proto.Uint64(a.Histogram.GetSampleCount() + b.Histogram.GetSampleCount())
		a.Histogram.SampleSum = proto.Float64(a.Histogram.GetSampleSum() + b.Histogram.GetSampleSum())
		for i, bucket := range b.Histogram.GetBucket() { // all series of a metric have the same buckets
			if i < len(a.Histogram.Bucket) {
				a.Histogram.Bucket[i].CumulativeCount = proto.Uint64(
					a.Histogram.Bucket[i].GetCumulativeCount() + bucket.GetCumulativeCount())
			}
		}
	}
}
