// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"strings"
	"testing"

	"keelson.dev/keelson/test/machines/lab"
)

// TestBenchmark runs the automated checks of the CIS Kubernetes Benchmark on a control plane and on a worker,
// and the commands of the page about the store.
func TestBenchmark(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "benchmark")
	c.noStrays()
	first, worker := c.machine("m1", release), c.machine("m2", release)
	join := c.initialize(first, "")
	c.run(worker, join+" "+eviction)
	out := c.run(first, "ctl store status; ctl store status --top 3; ctl store status --top 0 -o json")
	if !strings.Contains(out, "QUOTA") || !strings.Contains(out, `"databases"`) {
		t.Errorf("state of the store: %s", out)
	}
	for _, m := range []*lab.Machine{first, worker} {
		if err := m.CopyIn("../../hack/cis.sh", "/root/cis.sh"); err != nil {
			t.Fatal(err)
		}
		out := c.run(m, "bash /root/cis.sh --machine || true")
		t.Logf("%s:\n%s", m.Name(), out)
		if !strings.Contains(out, " passed, 0 failed, ") {
			t.Errorf("%s fails checks", m.Name())
		}
	}
}
