// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModulesAreComplete checks that each module's go.mod file requires all modules that its
// packages need, so that the module can be used outside the workspace. Inside the workspace, a
// build succeeds even if only another module requires them.
func TestModulesAreComplete(t *testing.T) {
	modules, err := filepath.Glob("../../staging/src/keelson.dev/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatal("no modules", err)
	}
	for _, m := range append(modules, "../../go.mod", "../../test/csi/sanity/go.mod", "../../test/envtest/go.mod",
		"../../test/conformance/go.mod", "../../hack/release/go.mod") {
		cmd := exec.Command("go", "list", "-mod=readonly", "-deps", "-test", "./...")
		cmd.Dir, cmd.Env = filepath.Dir(m), append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m, err, out)
		}
	}
}

// TestOneVersion checks that the modules that the first "make up" builds require the same versions
// of the modules that they share. Two versions of a package would both have to be compiled.
func TestOneVersion(t *testing.T) {
	first := map[string]string{}
	for _, dir := range []string{"../..", "../../hack/tools", "../../hack/tools/coredns"} {
		cmd := exec.Command("go", "mod", "edit", "-json")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(dir, err)
		}
		var m struct {
			Require []struct{ Path, Version string }
		}
		if err := json.Unmarshal(out, &m); err != nil || len(m.Require) == 0 {
			t.Fatal(dir, err)
		}
		for _, r := range m.Require {
			if v, known := first[r.Path]; known && v != r.Version {
				t.Errorf("%s requires %s %s, another module requires %s", dir, r.Path, r.Version, v)
			}
			first[r.Path] = r.Version
		}
	}
}

// TestProgramsAreSmall checks that no program of a node or of the control plane contains packages that
// call methods by name, except the API server, whose etcd needs them. The linker keeps all exported
// methods of all types in a program with such calls, which makes it 1.5 times as large.
//
// The package text/template also calls methods by name. The programs contain packages that import it,
// but the linker drops it, because these programs never reach it.
func TestProgramsAreSmall(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^export GOFLAGS = (.*)$`).FindSubmatch(makefile)
	if flags == nil {
		t.Fatal("the Makefile does not set GOFLAGS")
	}
	cmd := exec.Command("go", "list", "-deps", "./cmd/controller-manager", "./cmd/ingress", "./cmd/kubelet",
		"./cmd/proxy", "./cmd/scheduler")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOFLAGS="+string(flags[1]))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, forbidden := range []string{"github.com/google/go-cmp/cmp", "golang.org/x/net/trace", "html/template"} {
		if slices.Contains(deps, forbidden) {
			t.Errorf("a program imports %s", forbidden)
		}
	}
}
