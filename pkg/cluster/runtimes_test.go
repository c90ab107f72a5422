// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRuntimeHandlers checks which OCI runtimes are in containerd's configuration.
func TestRuntimeHandlers(t *testing.T) {
	for name, tt := range map[string]struct {
		runtime  string
		withRunc bool
		want     []string
		without  string
	}{
		"crun alone": {crun, false, []string{`default_runtime_name = "crun"`, "runtimes.test-handler]"},
			"runtimes.runc]"},
		"runc is built": {crun, true, []string{`default_runtime_name = "crun"`, "runtimes.runc]"},
			`default_runtime_name = "runc"`},
		"runc by default": {runc, true, []string{`default_runtime_name = "runc"`, "runtimes.crun]", "/runc\""},
			`default_runtime_name = "crun"`},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := containerdConfig("/root", tt.runtime, tt.withRunc)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(config), want) {
					t.Errorf("no %s in\n%s", want, config)
				}
			}
			if strings.Contains(string(config), tt.without) {
				t.Errorf("%s in\n%s", tt.without, config)
			}
		})
	}
}

// TestProgramsNotBuilt checks that the error about a missing program has the command that builds
// the program.
func TestProgramsNotBuilt(t *testing.T) {
	c := &Config{Nodes: 1, BinDir: t.TempDir(), ToolsDir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(c.ToolsDir, "cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		filepath.Join(c.BinDir, apiserver), filepath.Join(c.BinDir, controllerManager), filepath.Join(c.BinDir, scheduler),
		filepath.Join(c.BinDir, "kubelet"), filepath.Join(c.BinDir, "cni"), filepath.Join(c.BinDir, "proxy"),
		filepath.Join(c.ToolsDir, "containerd"), filepath.Join(c.ToolsDir, "containerd-shim-runc-v2"),
		filepath.Join(c.ToolsDir, "ctr"),
		filepath.Join(c.ToolsDir, crun), filepath.Join(c.ToolsDir, "cni", "portmap"),
	} {
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkPrograms(c); err != nil {
		t.Errorf("with crun: %v", err)
	}
	c.Runtime = runc
	err := checkPrograms(c)
	if !errors.Is(err, errNotBuilt) || !strings.Contains(err.Error(), "hack/tools.sh runc") {
		t.Errorf("without runc: %v", err)
	}
}
