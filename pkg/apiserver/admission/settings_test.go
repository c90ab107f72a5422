// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"
	"time"
)

// TestSettings checks that invalid settings of plugins are rejected, with the right errors.
func TestSettings(t *testing.T) {
	const rates, tolerated = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: ",
		"apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: "
	for text, want := range map[string]string{
		`{}`:                    `Object 'Kind' is missing in '{}'`,
		rates + "Foo":           `no kind "Foo" is registered`,
		rates + "Configuration": `limits: Invalid value: null: must not be empty`,
		rates + "Configuration\nlimits: [{type: A, cacheSize: -1}]": `[limits[0].type: Unsupported value: ` +
			`"A": supported values: "Server", "Namespace", "User", "SourceAndObject", ` +
			`limits[0].burst: Invalid value: 0: must be positive, limits[0].qps: Invalid value: 0: must be ` +
			`positive, limits[0].cacheSize: Invalid value: -1: must not be negative]`,
	} {
		if _, err := newEventRates(Deps{settings: strings.NewReader(text)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	bad := tolerated + "Configuration\ndefault: [{operator: Exists, value: v}]"
	want := `podtolerationrestriction.default[0].operator: Invalid value: "v": value must be empty when`
	if _, err := newTolerations(Deps{settings: strings.NewReader(bad)}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestImageSettings checks the unit of numbers in the settings of ImagePolicyWebhook, and which
// numbers are valid.
func TestImageSettings(t *testing.T) {
	for file, want := range map[time.Duration]time.Duration{
		-1: 0, 0: 5 * time.Minute, 1: time.Second, 1800: 30 * time.Minute, -2: -1, 1801: -1,
		18446744075: -1, -18446744072: -1, // in nanoseconds, both would wrap around to about one second
	} {
		s := imageSettings{AllowTTL: file}
		switch err := s.normalize(); {
		case (err != nil) != (want < 0):
			t.Errorf("%d: %v", file, err)
		case err == nil && s.AllowTTL != want:
			t.Errorf("%d means %v, want %v", file, s.AllowTTL, want)
		}
	}
}
