// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// TestTune checks the settings that the proxy writes, on a node with 4 CPUs.
func TestTune(t *testing.T) {
	for name, c := range map[string]struct {
		perCore, min int32
		before, want map[string]string
	}{
		"raises both": {perCore: 32768, min: 1000,
			before: map[string]string{"nf_conntrack_max": "65536\n", "hashsize": "16384\n"},
			want:   map[string]string{"nf_conntrack_max": "131072", "hashsize": "32768"}},
		"lowers nothing": {perCore: 32768,
			before: map[string]string{"nf_conntrack_max": "262144\n", "hashsize": "65536\n"},
			want:   map[string]string{"nf_conntrack_max": "262144\n", "hashsize": "65536\n"}},
		"has a minimum": {perCore: 1, min: 4000,
			before: map[string]string{"nf_conntrack_max": "0", "hashsize": "0"},
			want:   map[string]string{"nf_conntrack_max": "4000", "hashsize": "1000"}},
		"has a maximum": {perCore: 1 << 20,
			before: map[string]string{"nf_conntrack_max": "0", "hashsize": "0"},
			want:   map[string]string{"nf_conntrack_max": "1048576", "hashsize": "262144"}},
		"is off": {before: map[string]string{"nf_conntrack_max": "1", "hashsize": "1"},
			want: map[string]string{"nf_conntrack_max": "1", "hashsize": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, value := range c.before {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k := &kubeproxy.KubeProxyConfiguration{OOMScoreAdj: ptr.To[int32](-5)}
			k.Conntrack.MaxPerCore, k.Conntrack.Min = &c.perCore, &c.min
			k.Conntrack.UDPTimeout.Duration = time.Minute
			(&tuner{netfilter: dir, module: dir, process: dir, cpus: 4, log: slog.New(slog.DiscardHandler)}).apply(k)
			want := maps.Clone(c.want)
			want["oom_score_adj"], want["nf_conntrack_udp_timeout"] = "-5", "60"
			got := map[string]string{}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				b, err := os.ReadFile(filepath.Join(dir, f.Name()))
				if err != nil {
					t.Fatal(err)
				}
				got[f.Name()] = string(b)
			}
			if !maps.Equal(got, want) {
				t.Errorf("settings %q, want %q", got, want)
			}
		})
	}
}
