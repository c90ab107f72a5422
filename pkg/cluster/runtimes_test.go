// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/provision"
)

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
		filepath.Join(c.ToolsDir, provision.Crun), filepath.Join(c.ToolsDir, "cni", "portmap"),
	} {
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkPrograms(c); err != nil {
		t.Errorf("with crun: %v", err)
	}
	c.Runtime = provision.Runc
	err := checkPrograms(c)
	if !errors.Is(err, errNotBuilt) || !strings.Contains(err.Error(), "hack/tools.sh runc") {
		t.Errorf("without runc: %v", err)
	}
}
