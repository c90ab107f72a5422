// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	gomodule "golang.org/x/mod/module"
)

var (
	// licenceName matches the names of files with licences and notices, noticeName those with notices
	// only, and codeName those of source code, such as license.go.
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]es?|unlicense|copying|copyright|notices?|patents)([-._].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^(copyright|notices?|patents)`)
	codeName    = regexp.MustCompile(`(?i)\.(go|sh|py|js|json|ya?ml|tmpl|tpl|header|hdr)$`)
)

// reviewed has the licences of modules whose texts the library does not recognize. A maintainer has
// read these texts.
var reviewed = map[string]string{}

// minRecognized is the part of a licence's words, in percent, that must be recognized. It is the
// limit of Go's package site.
const minRecognized = 75

var (
	errNoLicence      = errors.New("has no file with a licence")
	errUnknownLicence = errors.New("has an unknown licence: read it, and add it to the table in hack/release/licences.go")
)

// collect copies the licences of all parts to the directory licenses of the release. It returns the
// SPDX expressions of the modules' licences.
func (r *release) collect(parts []component, modules []module) (map[module]string, error) {
	to := filepath.Join(r.Root, "licenses")
	if err := os.RemoveAll(to); err != nil {
		return nil, err
	}
	if err := copyFile(filepath.Join(r.Source, "LICENSE"), filepath.Join(to, "keelson", "LICENSE")); err != nil {
		return nil, err
	}
	for _, p := range parts {
		for _, text := range p.Texts {
			n, err := copyFiles(filepath.Join(r.Texts, text), filepath.Join(to, text), func(string) bool { return true })
			if err == nil && n == 0 {
				err = errNoLicence
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Name, err)
			}
		}
	}
	out := map[module]string{}
	for _, m := range modules {
		from, err := r.moduleDir(m)
		if err != nil {
			return nil, err
		}
		if _, err := copyFiles(from, filepath.Join(to, "modules", m.String()), isLicence); err != nil {
			return nil, fmt.Errorf("module %s: %w", m, err)
		}
		if out[m], err = identify(m, from); err != nil {
			return nil, fmt.Errorf("module %s: %w", m, err)
		}
	}
	return out, nil
}

// moduleDir returns the directory of a module in the module cache.
func (r *release) moduleDir(m module) (string, error) {
	path, err := gomodule.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := gomodule.EscapeVersion(m.Version)
	if err != nil {
		return "", err
	}
	return filepath.Join(r.Modules, filepath.FromSlash(path)+"@"+version), nil
}

func isLicence(name string) bool { return licenceName.MatchString(name) && !codeName.MatchString(name) }

// copyFiles copies the files below from whose names are wanted. It skips directories that are not
// compiled into programs. It returns how many files it has copied.
func copyFiles(from, to string, wanted func(name string) bool) (int, error) {
	n := 0
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != from && (d.Name() == "testdata" || d.Name() == "vendor" || d.Name()[0] == '.' ||
			d.Name()[0] == '_'):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !wanted(d.Name()):
			return nil
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		n++
		return copyFile(path, filepath.Join(to, rel))
	})
	return n, err
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// identify returns the SPDX expression of the licences in the root directory of a module.
func identify(m module, dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	found, texts := []string{}, 0
	for _, e := range entries {
		if !e.Type().IsRegular() || !isLicence(e.Name()) || noticeName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		texts++
		cover := licensecheck.Scan(text)
		if cover.Percent < minRecognized {
			continue
		}
		for _, match := range cover.Match {
			found = append(found, match.ID)
		}
	}
	if known := reviewed[m.Path]; known != "" && texts > 0 {
		return known, nil
	}
	switch {
	case texts == 0:
		return "", errNoLicence
	case len(found) == 0:
		return "", errUnknownLicence
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}
