// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"testing"

	"keelson.dev/keelson/pkg/features"
)

// TestFeatureGates checks which feature gates can be set.
func TestFeatureGates(t *testing.T) {
	const fixed = " is not supported: this server cannot turn these features on or off"
	for args, c := range map[string]struct {
		podGroups bool
		wrong     string
	}{
		"":                      {},
		"GenericWorkload=true":  {podGroups: true},
		"GenericWorkload=false": {},
		"GenericWorkload=true,PodGroupPreemptionPolicy=true": {
			wrong: "--feature-gates: PodGroupPreemptionPolicy=true" + fixed},
		"GenericWorkload=true,TopologyAwareWorkloadScheduling=true": {
			wrong: "--feature-gates: TopologyAwareWorkloadScheduling=true" + fixed},
		"GenericWorkload=true,DRAWorkloadResourceClaims=true": {
			wrong: "--feature-gates: DRAWorkloadResourceClaims=true" + fixed},
		"Unheard=true": {wrong: "unrecognized feature gate: Unheard"},
	} {
		o, _, err := parse([]string{"--feature-gates=" + args}, io.Discard)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.wrong {
			t.Errorf("%s: error %q, want %q", args, got, c.wrong)
		}
		if err == nil && o.features.Enabled(features.GenericWorkload) != c.podGroups {
			t.Errorf("%s: PodGroups %t, want %t", args, !c.podGroups, c.podGroups)
		}
	}
}
