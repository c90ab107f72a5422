// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"path/filepath"
	"strings"
)

// View says which files of the machine the program of a unit of systemd sees. For each directory or file for which
// the unit has a setting, it is true if that is visible. The setting for the longest path applies.
type View map[string]bool

// ParseUnit returns the view of a unit from the text of its files.
func ParseUnit(text string) View {
	v := View{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch on := value == "yes" || value == "true"; {
		case name == "ProtectHome" && on:
			v.set(false, "/home", "/root", "/run/user")
		case name == "PrivateTmp" && on:
			v.set(false, "/tmp", "/var/tmp")
		case name == "TemporaryFileSystem" || name == "InaccessiblePaths":
			v.set(false, strings.Fields(value)...)
		case name == "BindPaths" || name == "BindReadOnlyPaths":
			v.set(true, strings.Fields(value)...)
		}
	}
	return v
}

// set sets whether paths are visible. They have the form that units have: -PATH:MORE. The path that the program sees
// is the second one, if there are two.
func (v View) set(visible bool, paths ...string) {
	for _, text := range paths {
		for _, path := range strings.SplitN(text, ":", 3) {
			if path = strings.TrimLeft(path, "-+"); strings.HasPrefix(path, "/") {
				text = path
			}
		}
		v[filepath.Clean(text)] = visible
	}
}

// sees reports whether the program sees the file at a path, also if that is a link. A file that does not exist is
// seen if it would be.
func (v View) sees(path string) bool {
	if !v.shows(path) {
		return false
	}
	target, err := filepath.EvalSymlinks(path)
	return err != nil || v.shows(target)
}

// shows reports whether the unit has a directory entry at a path without links.
func (v View) shows(path string) bool {
	if below, ok := strings.CutPrefix(path, "/var/run/"); ok { // a link on all systems with systemd
		path = "/run/" + below
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if visible, ok := v[at]; ok {
			return visible
		}
		if at == "/" || at == "." {
			return true
		}
	}
}
