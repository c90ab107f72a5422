// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import "testing"

// TestBuildInfo: every process tells, by Kubernetes' metric, how it was built.
func TestBuildInfo(t *testing.T) {
	families, err := NewMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubernetes_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, l := range f.Metric[0].Label {
			labels[l.GetName()] = l.GetValue()
		}
		if len(labels) != 9 || labels["git_version"] != Version || labels["minor"] != Minor || f.Metric[0].GetGauge().GetValue() != 1 {
			t.Errorf("build info %v", f)
		}
		return
	}
	t.Error("no build info")
}
