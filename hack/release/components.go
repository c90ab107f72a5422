// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// component is a part of programs that is not a Go module.
type component struct {
	Name, Version, Licence, Origin string
	// Texts are the names of the files and directories with the licence.
	Texts []string
	// Programs are the names of the programs that contain the component.
	Programs []string
}

// debianPackage is a Debian package from which parts of C programs come.
type debianPackage struct{ Name, Version string }

// readPackages reads a file with lines that have the name and the version of a Debian package.
func readPackages(path string) ([]debianPackage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []debianPackage
	for line := range strings.Lines(string(text)) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil, fmt.Errorf("line %q is not a name and a version", line)
		}
		out = append(out, debianPackage{name, version})
	}
	slices.SortFunc(out, func(a, b debianPackage) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(out), nil
}

// crunVersion is the version of the source that hack/crun.sh builds.
const crunVersion = "1.21"

// The C programs of a release.
const (
	crun  = "tools/crun"
	pause = "images/pause.tar/pause"
)

// libraries are the static libraries in C programs, by the names of the Debian packages that have their
// versions and licences.
var libraries = []struct {
	Package, Name, Licence string
	Programs               []string
}{
	{"gcc-12-base", "libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1", []string{crun, pause}},
	{"libc6-dev", "glibc", "LGPL-2.1-or-later", []string{crun, pause}},
	{"libcap-dev", "libcap", "BSD-3-Clause OR GPL-2.0-only", []string{crun}},
	{"libseccomp-dev", "libseccomp", "LGPL-2.1-only", []string{crun}},
	{"libyajl-dev", "yajl", "ISC", []string{crun}},
}

var errUnknownProgram = errors.New("contains no information about Go modules, and is not a known C program")

// components returns the parts of programs that are not Go modules: Go's standard library, crun, and
// the libraries in C programs.
func (r *release) components(programs []program, packages []debianPackage) ([]component, error) {
	goParts := component{
		Name: "Go standard library", Licence: "BSD-3-Clause", Origin: "https://go.dev/dl/", Texts: []string{"go"},
	}
	for _, p := range programs {
		switch {
		case p.Go == "" && p.Name != crun && p.Name != pause:
			return nil, fmt.Errorf("%s: %w", p.Name, errUnknownProgram)
		case p.Go == "":
		case goParts.Version != "" && goParts.Version != p.Go:
			return nil, fmt.Errorf("%s was built with %s, other programs with %s", p.Name, p.Go, goParts.Version)
		default:
			goParts.Version = p.Go
			goParts.Programs = append(goParts.Programs, p.Name)
		}
	}
	out := []component{goParts, {
		Name: "crun", Version: crunVersion, Licence: "GPL-2.0-or-later AND LGPL-2.1-or-later",
		Origin: "Debian's source archive crun_" + crunVersion + ".orig.tar.gz, which hack/crun.sh changes and builds",
		Texts:  []string{"crun"}, Programs: []string{crun},
	}}
	for _, l := range libraries {
		i := slices.IndexFunc(packages, func(p debianPackage) bool { return p.Name == l.Package })
		if i < 0 {
			return nil, fmt.Errorf("the list of Debian packages does not have %s", l.Package)
		}
		out = append(out, component{
			Name: l.Name, Version: packages[i].Version, Licence: l.Licence, Programs: l.Programs,
			Origin: "Debian's package " + l.Package, Texts: []string{"debian/" + l.Package, "debian/common-licenses"},
		})
	}
	return out, nil
}
