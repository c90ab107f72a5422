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

// Metrics restricts which metrics and label values /metrics shows.
type Metrics struct {
	// Disabled are the names of metrics that /metrics omits.
	Disabled []string
	// AllowLabels maps "metric,label" to the allowed values of that label, separated by commas.
	// /metrics shows "unexpected" instead of any other value.
	AllowLabels map[string]string
	// AllowLabelsFile is a file with further entries for AllowLabels.
	AllowLabelsFile string

	showHidden string
}

func (m *Metrics) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Disabled, "disabled-metrics", nil,
		"names of metrics that /metrics does not contain, separated by commas")
	fs.StringToStringVar(&m.AllowLabels, "allow-metric-labels", nil,
		"values that a label of a metric may have, as METRIC,LABEL='VALUE,VALUE'; all other values of this "+
			"label are replaced by \"unexpected\"")
	fs.StringVar(&m.AllowLabelsFile, "allow-metric-labels-manifest", "",
		"YAML file with further --allow-metric-labels: a map from METRIC,LABEL to VALUE,VALUE")
	fs.StringVar(&m.showHidden, "show-hidden-metrics-for-version", "", "no effect: the server hides no metrics")
}

func (m *Metrics) validate(add func(format string, args ...any)) {
	at := field.NewPath("metrics")
	previous := version.MustParse(daemon.Major + "." + daemon.Minor).SubtractMinor(1).String()
	if m.showHidden != "" && m.showHidden != previous {
		add("%w", field.Invalid(at.Child("showHiddenMetricsForVersion"), m.showHidden,
			fmt.Sprintf("must be omitted or have the value '%s'; only the previous minor version is allowed", previous)))
	}
	name := regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	for _, d := range m.Disabled {
		if !name.MatchString(d) {
			add("%w", field.Invalid(at.Child("disabledMetrics"), m.Disabled,
				fmt.Sprintf("must be fully qualified metric names matching %q, got %q", name, d)))
			break // report only the first of several errors
		}
	}
	if err := CheckLabels(at.Child("allowListMapping"), m.AllowLabels); err != nil {
		add("%w", err)
	}
}

// CheckLabels validates the keys of labels, a value of AllowLabels. The argument at is the position
// for errors.
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
