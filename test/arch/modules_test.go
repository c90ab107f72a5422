// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestModulesAreComplete checks that the go.mod file of each module names all modules that its
// packages need, so that it can be used alone. Inside the workspace builds would succeed if only
// another module named them.
func TestModulesAreComplete(t *testing.T) {
	modules, err := filepath.Glob("../../staging/src/keelson.dev/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatal("no modules", err)
	}
	for _, m := range append(modules, "../../go.mod") {
		cmd := exec.Command("go", "list", "-mod=readonly", "-deps", "./...")
		cmd.Dir, cmd.Env = filepath.Dir(m), append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m, err, out)
		}
	}
}
