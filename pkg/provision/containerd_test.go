// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
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
		"crun alone": {Crun, false, []string{`default_runtime_name = "crun"`, "runtimes.test-handler]"},
			"runtimes.runc]"},
		"runc is built": {Crun, true, []string{`default_runtime_name = "crun"`, "runtimes.runc]"},
			`default_runtime_name = "runc"`},
		"runc by default": {Runc, true, []string{`default_runtime_name = "runc"`, "runtimes.crun]", "/runc\""},
			`default_runtime_name = "crun"`},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Containerd{Root: "/root", Tools: "/tools", Runtime: tt.runtime, WithRunc: tt.withRunc}.Config()
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
