// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stat_test

import (
	"os"
	"path/filepath"
	"testing"

	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
)

func TestGroupOf(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		unified bool
		want    string // the expected cgroup; empty if GroupOf must return an error
	}{
		"Version2": {"0::/system.slice/kubelet.service\n", true, "/system.slice/kubelet.service"},
		"Version1": {"5:memory:/kube\n4:cpu,cpuacct:/kube\n3:pids:/\n0::/other\n", false, "/kube"},
		"Version1Systemd": {"5:memory:/a.service\n4:cpu,cpuacct:/a.service\n1:name=systemd:/a.service\n0::/\n",
			false, "/a.service"},
		"NotCounted":   {"5:memory:/\n4:cpu,cpuacct:/\n1:name=systemd:/a.service\n", false, ""},
		"InTwo":        {"5:memory:/a\n4:cpu,cpuacct:/b\n", false, ""},
		"NotMounted":   {"4:cpu,cpuacct:/b\n", false, ""},
		"OnlyVersion1": {"5:memory:/kube\n4:cpu:/kube\n", true, ""},
		"NoProcess":    {"", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if c.file != "" {
				if err := os.Mkdir(filepath.Join(proc, "7"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(proc, "7", "cgroup"), []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := stat.New(t.TempDir(), c.unified).GroupOf(proc, 7)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}
