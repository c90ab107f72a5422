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

// unexpected stands for the values of a label that are not told.
const unexpected = "unexpected"

// told says what of metrics is told. It is immutable.
type told struct {
	disabled sets.Set[string]
	labels   map[string]map[string]sets.Set[string] // values by metric and label
}

// newTold reads the file that cfg names.
func newTold(cfg *config.Metrics) (*told, error) {
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
	t := &told{disabled: sets.New(cfg.Disabled...), labels: map[string]map[string]sets.Set[string]{}}
	for key, values := range allow {
		name, label, _ := strings.Cut(key, ",")
		if t.labels[name] == nil {
			t.labels[name] = map[string]sets.Set[string]{}
		}
		t.labels[name][label] = sets.New(strings.Split(values, ",")...)
	}
	return t, nil
}

// of is what is told of families, which it changes.
func (t *told) of(families []*dto.MetricFamily) []*dto.MetricFamily {
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return t.disabled.Has(f.GetName()) })
	for _, f := range families {
		if allowed := t.labels[f.GetName()]; allowed != nil {
			f.Metric = narrowed(f.GetMetric(), allowed)
		}
	}
	return families
}

// narrowed are metrics without the values of labels that are not allowed; those that are then the same are one.
func narrowed(metrics []*dto.Metric, allowed map[string]sets.Set[string]) []*dto.Metric {
	var out []*dto.Metric
	by := map[string]*dto.Metric{}
	for _, m := range metrics {
		key := ""
		labels := make([]*dto.LabelPair, 0, len(m.GetLabel()))
		for _, l := range m.GetLabel() {
			if values, ok := allowed[l.GetName()]; ok && !values.Has(l.GetValue()) {
				l = &dto.LabelPair{Name: l.Name, Value: proto.String(unexpected)} // that of the metric is not ours
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
	return out
}

// merge adds what b counted to a.
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
		a.Summary.Quantile = nil // there are none of both
	case a.Histogram != nil:
		a.Histogram.SampleCount = proto.Uint64(a.Histogram.GetSampleCount() + b.Histogram.GetSampleCount())
		a.Histogram.SampleSum = proto.Float64(a.Histogram.GetSampleSum() + b.Histogram.GetSampleSum())
		for i, bucket := range b.Histogram.GetBucket() { // of one metric all have the same
			if i < len(a.Histogram.Bucket) {
				a.Histogram.Bucket[i].CumulativeCount = proto.Uint64(a.Histogram.Bucket[i].GetCumulativeCount() + bucket.GetCumulativeCount())
			}
		}
	}
}
