// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import "testing"

// TestMemoryMetrics checks that every process exports the sizes of its anonymous pages and its file
// pages.
func TestMemoryMetrics(t *testing.T) {
	families, err := NewMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "keelson_process_memory_bytes" {
			continue
		}
		for _, m := range f.GetMetric() {
			exported[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	// The test process has between 1 MiB and 1 TiB of each kind of page.
	for _, pages := range []string{"anonymous", "file"} {
		if bytes := exported[pages]; bytes < 1<<20 || bytes > 1<<40 {
			t.Errorf("%s pages: %.0f bytes", pages, bytes)
		}
	}
}
