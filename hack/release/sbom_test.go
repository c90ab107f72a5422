// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

var testRelease = release{Version: "0.2.0", Arch: "amd64", Commit: "abc", Time: time.Unix(1700000000, 0).UTC()}

// TestBill checks that the library reads the bill of materials, that each relationship has both of its
// ends, and what the bill says about each kind of element.
func TestBill(t *testing.T) {
	r := testRelease
	r.Root = write(t, 0o644, map[string]string{"images/pause.tar": "image"})
	yaml := module{"go.yaml.in/yaml/v3", "v3.0.5"}
	programs := []program{
		{Name: "bin/ctl", SHA256: "01", Go: "go1.26.8", Modules: []module{yaml}},
		{Name: crun, SHA256: "02"},
		{Name: pause, Image: "pause", SHA256: "03"},
	}
	parts := []component{{Name: "glibc", Version: "2.36", Licence: "LGPL-2.1-or-later", Programs: []string{crun, pause}}}
	text, err := r.bill(programs, parts, map[module]string{yaml: "MIT"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.bill(programs, parts, map[module]string{yaml: "MIT"})
	if err != nil || !bytes.Equal(text, again) {
		t.Error("two calls differ", err)
	}
	var doc spdx.Document
	if err := spdxjson.ReadInto(bytes.NewReader(text), &doc); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&doc); err != nil {
		t.Error(err)
	}
	have := map[string]string{}
	for _, p := range doc.Packages {
		have[p.PackageName] = p.PackageVersion + " " + p.PackageLicenseDeclared
		if p.FilesAnalyzed {
			t.Errorf("%s: filesAnalyzed", p.PackageName)
		}
	}
	for name, want := range map[string]string{
		"keelson": "0.2.0 Apache-2.0", "bin/ctl": " NOASSERTION", yaml.Path: "v3.0.5 MIT",
		"glibc": "2.36 LGPL-2.1-or-later", "images/pause.tar": " NOASSERTION", pause: " NOASSERTION",
	} {
		if have[name] != want {
			t.Errorf("%s: have %q, want %q", name, have[name], want)
		}
	}
	related := map[string]bool{}
	for _, x := range doc.Relationships {
		related[string(x.RefA.ElementRefID)+" "+x.Relationship+" "+string(x.RefB.ElementRefID)] = true
	}
	for _, want := range []string{
		"DOCUMENT DESCRIBES release", "release CONTAINS program-bin-ctl", "release CONTAINS image-pause",
		"image-pause CONTAINS program-images-pause.tar-pause",
		"program-bin-ctl STATIC_LINK module-go.yaml.in-yaml-v3-v3.0.5", "program-tools-crun STATIC_LINK component-glibc",
	} {
		if !related[want] {
			t.Errorf("no relationship %q", want)
		}
	}
}

func TestComponents(t *testing.T) {
	packages := []debianPackage{
		{"gcc-12-base", "0"}, {"libc6-dev", "1"}, {"libcap-dev", "2"}, {"libseccomp-dev", "3"}, {"libyajl-dev", "4"},
	}
	ctl, c := program{Name: "bin/ctl", Go: "go1.26.8"}, program{Name: crun}
	got, err := testRelease.components([]program{ctl, c}, packages)
	if err != nil || len(got) != 7 || got[0].Version != "go1.26.8" {
		t.Errorf("%+v, %v", got, err)
	}
	unknown := []program{ctl, {Name: "tools/other"}}
	if _, err := testRelease.components(unknown, packages); !errors.Is(err, errUnknownProgram) {
		t.Errorf("unknown program: %v", err)
	}
	if _, err := testRelease.components([]program{ctl, {Name: "bin/b", Go: "go1.20"}}, packages); err == nil {
		t.Error("programs of two versions of Go are accepted")
	}
	if _, err := testRelease.components([]program{ctl, c}, packages[1:]); err == nil {
		t.Error("a library without a version is accepted")
	}
}

func TestReadPackages(t *testing.T) {
	root := write(t, 0o644, map[string]string{"good": "b 2\na 1:1-1\nb 2\n", "bad": "a\n"})
	got, err := readPackages(filepath.Join(root, "good"))
	if err != nil || len(got) != 2 || got[0] != (debianPackage{"a", "1:1-1"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := readPackages(filepath.Join(root, "bad")); err == nil {
		t.Error("a line without a version is accepted")
	}
}

// TestPrograms reads this test's own program.
func TestPrograms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	root := write(t, 0o755, map[string]string{"bin/test": string(text), "bin/script": "#!/bin/sh\n", "short": "x"})
	r := release{Root: root, Parts: write(t, 0o755, map[string]string{"web/web": string(text)})}
	got, err := r.programs()
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if got[0].Name != "bin/test" || got[1].Name != "images/web.tar/web" || got[1].Image != "web" || got[0].Go == "" {
		t.Errorf("%+v", got)
	}
	names := map[string]bool{}
	for _, m := range modules(got) {
		names[m.Path] = true
	}
	if !names["github.com/google/licensecheck"] || names["keelson.dev/keelson/hack/release"] {
		t.Errorf("modules %v", names)
	}
}
