// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestIsLicence(t *testing.T) {
	for name, want := range map[string]bool{
		"LICENSE": true, "LICENCE.txt": true, "LICENSE-MIT": true, "License.md": true, "COPYING.libcrun": true,
		"NOTICE": true, "PATENTS": true, "UNLICENSE": true, "LICENSE.BSD-3-Clause": true,
		"license.go": false, "copyright_test.go": false, "licensecheck": false, "README.md": false,
		"notices.json": false, "LICENSE.header": false,
	} {
		if got := isLicence(name); got != want {
			t.Errorf("isLicence(%q) = %v", name, got)
		}
	}
}

const (
	mit = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`
	isc = `Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby
granted, provided that the above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN
ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.
`
)

func TestIdentify(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		err   error
	}{
		"one licence":            {map[string]string{"LICENSE": "Copyright 2020 A\n" + mit}, "MIT", nil},
		"two licences":           {map[string]string{"LICENSE": mit, "COPYING": isc}, "ISC AND MIT", nil},
		"the same licence twice": {map[string]string{"LICENSE": mit, "LICENSE.md": mit}, "MIT", nil},
		"with a notice":          {map[string]string{"LICENSE": mit, "NOTICE": "made by A"}, "MIT", nil},
		"no licence":             {map[string]string{"README.md": "text", "license.go": mit}, "", errNoLicence},
		"only a notice":          {map[string]string{"NOTICE": "made by A"}, "", errNoLicence},
		"licence of a part":      {map[string]string{"part/LICENSE": mit}, "", errNoLicence},
		"unknown licence":        {map[string]string{"LICENSE": "Use it on Mondays."}, "", errUnknownLicence},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := identify(module{"example.com/a", "v1.0.0"}, write(t, 0o644, c.files))
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("have %q, %v; want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestCollect(t *testing.T) {
	cache := write(t, 0o444, map[string]string{
		"example.com/!upper@v1.0.0/LICENSE":              mit,
		"example.com/!upper@v1.0.0/third/LICENSE":        isc,
		"example.com/!upper@v1.0.0/testdata/x/LICENSE":   "of an input of tests",
		"example.com/!upper@v1.0.0/license.go":           "package upper",
		"example.com/empty@v1.0.0/main.go":               "package empty",
		"example.com/!upper@v1.0.0/vendor/y.com/LICENSE": "of a module that is not linked",
	})
	source := write(t, 0o644, map[string]string{"LICENSE": "ours"})
	texts := write(t, 0o644, map[string]string{"go/LICENSE": "of Go"})
	parts := []component{{Name: "Go", Texts: []string{"go"}}}
	upper := module{"example.com/Upper", "v1.0.0"}

	r := release{Root: t.TempDir(), Modules: cache, Source: source, Texts: texts}
	got, err := r.collect(parts, []module{upper})
	if err != nil || got[upper] != "MIT" {
		t.Fatal(got, err)
	}
	files, err := list(filepath.Join(r.Root, "licenses"))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		if !f.Dir {
			have = append(have, f.Name)
		}
	}
	want := []string{"go/LICENSE", "keelson/LICENSE", "modules/example.com/Upper@v1.0.0/LICENSE",
		"modules/example.com/Upper@v1.0.0/third/LICENSE"}
	if len(have) != len(want) {
		t.Fatalf("have %q, want %q", have, want)
	}
	for i := range want {
		if have[i] != want[i] {
			t.Errorf("have %q, want %q", have, want)
		}
	}

	if _, err := r.collect(parts, []module{{"example.com/empty", "v1.0.0"}}); !errors.Is(err, errNoLicence) {
		t.Errorf("a module without a licence: %v", err)
	}
	if _, err := r.collect([]component{{Name: "crun", Texts: []string{"crun"}}}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a component without a licence: %v", err)
	}
}
