// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// program is an executable file of a release.
type program struct {
	// Name is the path in the release. Image is the name of the image that contains the program, and
	// is empty for programs that are files of the release.
	Name, Image string
	SHA256      string
	// Modules are the Go modules that the program contains, without Keelson's own. C programs have
	// none, and an empty Go version.
	Modules []module
	Go      string
}

// module is a version of a Go module.
type module struct{ Path, Version string }

func (m module) String() string { return m.Path + "@" + m.Version }

func compareModules(a, b module) int {
	return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
}

// programs returns the programs of the release, and those in its images.
func (r *release) programs() ([]program, error) {
	out, err := findPrograms(r.Root, "")
	if err != nil {
		return nil, err
	}
	images, err := os.ReadDir(r.Parts)
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		inImage, err := findPrograms(filepath.Join(r.Parts, i.Name()), i.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, inImage...)
	}
	return out, nil
}

// findPrograms returns the ELF files below root.
func findPrograms(root, image string) ([]program, error) {
	files, err := list(root)
	if err != nil {
		return nil, err
	}
	var out []program
	for _, f := range files {
		if f.Dir || f.Link != "" {
			continue
		}
		elf, err := isELF(f.Path)
		if err != nil {
			return nil, err
		}
		if !elf {
			continue
		}
		p, err := readProgram(f.Path)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", f.Name, err)
		}
		p.Name, p.Image = f.Name, image
		if image != "" {
			p.Name = path.Join("images", image+".tar", f.Name)
		}
		out = append(out, p)
	}
	return out, nil
}

func isELF(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return bytes.Equal(magic, []byte("\x7fELF")), nil
}

// readProgram reads which modules a program contains.
func readProgram(path string) (program, error) {
	sum, err := sha256File(path)
	if err != nil {
		return program{}, err
	}
	p := program{SHA256: sum}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return p, nil // a C program
	}
	p.Go = info.GoVersion
	for _, d := range append(info.Deps, &info.Main) {
		if d.Replace != nil {
			d = d.Replace
		}
		if own(d.Path) {
			continue
		}
		if d.Version == "" || d.Version == "(devel)" {
			return p, fmt.Errorf("module %s has no version", d.Path)
		}
		p.Modules = append(p.Modules, module{d.Path, d.Version})
	}
	slices.SortFunc(p.Modules, compareModules)
	return p, nil
}

// own reports whether a module or a replacement of it is a part of this repository.
func own(path string) bool {
	return strings.HasPrefix(path, "keelson.dev/") || strings.HasPrefix(path, ".")
}

// modules returns the modules of all programs, sorted.
func modules(programs []program) []module {
	var out []module
	for _, p := range programs {
		out = append(out, p.Modules...)
	}
	slices.SortFunc(out, compareModules)
	return slices.Compact(out)
}
