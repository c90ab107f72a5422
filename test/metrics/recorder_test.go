// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// definition is the definition of a metric, as code registers it.
type definition struct {
	kind            string // "" if the collector does not show it
	level           string // "" if the help text has none
	labels, buckets []string
}

// recorder is a Prometheus registerer that records the definitions of metrics.
type recorder struct {
	*prometheus.Registry
	t     *testing.T
	found map[string]definition
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{prometheus.NewRegistry(), t, map[string]definition{}}
}

var (
	described = regexp.MustCompile(`fqName: "(\w+)", help: "(?:\[(\w+)\])?.*variableLabels: \{([^}]*)\}`)
	constants = regexp.MustCompile(`(\w+)="`)
)

// Register implements prometheus.Registerer.
func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		text := desc.String()
		f := described.FindStringSubmatch(text)
		if f == nil {
			r.t.Fatal("no description in ", text)
		}
		d := definition{level: f[2]}
		if f[3] != "" {
			d.labels = strings.Split(f[3], ",")
		}
		for _, label := range constants.FindAllStringSubmatch(text[strings.Index(text, "constLabels"):], -1) {
			d.labels = append(d.labels, label[1])
		}
		slices.Sort(d.labels)
		d.kind, d.buckets = kindOf(c, len(d.labels))
		r.found[f[1]] = d
	}
	return r.Registry.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			r.t.Fatal(err)
		}
	}
}

// kindOf returns the type of a collector's metric and the buckets of a histogram.
func kindOf(c prometheus.Collector, labels int) (kind string, buckets []string) {
	switch c := c.(type) {
	case *prometheus.CounterVec:
		return "counter", nil
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge", nil
	case prometheus.Counter:
		return "counter", nil
	case *prometheus.HistogramVec:
		defer c.Reset()
		if m, ok := c.WithLabelValues(slices.Repeat([]string{"x"}, labels)...).(prometheus.Metric); ok {
			return "histogram", bucketsOf(m)
		}
	case prometheus.Histogram:
		return "histogram", bucketsOf(c)
	}
	return "", nil
}

func bucketsOf(m prometheus.Metric) (out []string) {
	var value dto.Metric
	if m.Write(&value) != nil {
		return nil
	}
	for _, b := range value.GetHistogram().GetBucket() {
		out = append(out, strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
	}
	return out
}
