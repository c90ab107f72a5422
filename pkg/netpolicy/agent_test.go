// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestUnfilteredBridge checks that a metric and exactly one log line report that policies are not
// enforced between pods on the same bridge.
func TestUnfilteredBridge(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	a := &Agent{
		cfg: Config{BridgeSysctls: dir}, metrics: newMetrics(prometheus.NewRegistry()),
		deps: Deps{Log: slog.New(slog.NewTextHandler(&log, nil))},
	}
	for _, c := range []struct {
		value  string // content of the setting's file; if empty, the file does not exist
		metric float64
		lines  int
	}{{"", 0, 1}, {"", 0, 1}, {"1\n", 1, 1}, {"0\n", 0, 2}, {"1\n", 1, 2}} {
		if c.value != "" {
			for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(c.value), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		a.checkBridges()
		if got := testutil.ToFloat64(a.metrics.bridged); got != c.metric ||
			strings.Count(log.String(), "are not enforced") != c.lines {
			t.Errorf("%q: metric %v, log %q", c.value, got, log.String())
		}
	}
}
