// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"path"
	"strings"
	"testing"
)

// room returns the name of the part of the source tree that a file belongs to: a directory such as
// pkg/kubelet, a staging module, or a directory at the root of the repository.
func room(file string) string {
	parts := strings.Split(path.Dir(file), "/")
	depth := 1
	switch parts[0] {
	case "pkg", "test":
		depth = 2
	case "staging":
		depth = 4
	}
	return strings.Join(parts[:min(depth, len(parts))], "/")
}

func TestRoom(t *testing.T) {
	for file, want := range map[string]string{
		"pkg/kubelet/volume/manager.go":                 "pkg/kubelet",
		"pkg/kubelet/kubelet.go":                        "pkg/kubelet",
		"staging/src/keelson.dev/api/clock/clock.go":    "staging/src/keelson.dev/api",
		"staging/src/keelson.dev/scheduling/numbers.go": "staging/src/keelson.dev/scheduling",
		"cmd/ctl/main.go":                               "cmd",
		"test/e2e/doc.go":                               "test/e2e",
		"docs/decisions/streams.md":                     "docs",
		"README.md":                                     ".",
	} {
		if got := room(file); got != want {
			t.Errorf("room(%q) = %q, want %q", file, got, want)
		}
	}
}
