// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"regexp"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/keelson/pkg/daemon"
)

// Metrics says what /metrics leaves out.
type Metrics struct {
	// Disabled are the names of metrics that are not told.
	Disabled []string
	// AllowLabels are, by "metric,label", the values of a label that are told, separated by
	// commas; others are "unexpected".
	AllowLabels map[string]string
	// AllowLabelsFile is a file of more of them.
	AllowLabelsFile string

	showHidden string
}

func (m *Metrics) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Disabled, "disabled-metrics", nil, "names of metrics that /metrics does not tell")
	fs.StringToStringVar(&m.AllowLabels, "allow-metric-labels", nil, "values of labels that /metrics tells, others are \"unexpected\": metric,label='value,value'")
	fs.StringVar(&m.AllowLabelsFile, "allow-metric-labels-manifest", "", "file with a map of what --allow-metric-labels says")
	fs.StringVar(&m.showHidden, "show-hidden-metrics-for-version", "", "version whose metrics are told though they are hidden since; without effect: none is hidden")
}

func (m *Metrics) validate(add func(format string, args ...any)) {
	at := field.NewPath("metrics")
	previous := version.MustParse(daemon.Major + "." + daemon.Minor).SubtractMinor(1).String()
	if m.showHidden != "" && m.showHidden != previous {
		add("%w", field.Invalid(at.Child("showHiddenMetricsForVersion"), m.showHidden, fmt.Sprintf("must be omitted or have the value '%s'; only the previous minor version is allowed", previous)))
	}
	name := regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	for _, d := range m.Disabled {
		if !name.MatchString(d) {
			add("%w", field.Invalid(at.Child("disabledMetrics"), m.Disabled, fmt.Sprintf("must be fully qualified metric names matching %q, got %q", name, d)))
			break // the first is told
		}
	}
	if err := CheckLabels(at.Child("allowListMapping"), m.AllowLabels); err != nil {
		add("%w", err)
	}
}

// CheckLabels tells whether the keys of AllowLabels, which are at a place, are what they have to be.
func CheckLabels(at *field.Path, labels map[string]string) error {
	key := regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*$`)
	for k := range labels {
		if !key.MatchString(k) {
			return field.Invalid(at, labels, "must have keys with format `metricName,labelName` where metricName matches "+
				`"[a-zA-Z_:][a-zA-Z0-9_:]*" and labelName matches "[a-zA-Z_][a-zA-Z0-9_]*"`)
		}
	}
	return nil
}
