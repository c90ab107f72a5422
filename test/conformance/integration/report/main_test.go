// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const rules = "# a comment\n\nauth/TestKnown.*\ta reason\n"
	tests := map[string]struct {
		logs map[string]string // by file
		row  string            // of the table
		list string            // an entry of the list of failures, or empty
		err  string            // a part of the error, or empty
	}{
		"results": {
			logs: map[string]string{"auth.json": `
				{"Action":"start"}
				{"Action":"run","Test":"TestParent"}
				{"Action":"run","Test":"TestParent/a/b"}
				{"Action":"pass","Test":"TestParent/a/b"}
				{"Action":"pass","Test":"TestParent"}
				{"Action":"skip","Test":"TestSkipped"}
				{"Action":"output","Test":"TestFlags","Output":"x: not applicable: the test replaces a part"}
				{"Action":"fail","Test":"TestFlags"}
				{"Action":"fail","Test":"TestKnown1"}
				{"Action":"fail","Test":"TestKnown2"}
				{"Action":"fail","Elapsed":12.6}`},
			row:  "| `auth` | 1 | 0 | 2 | 1 | 1 | 13 |",
			list: "- `auth/TestKnown1` and 1 more: a reason",
		},
		"package in a directory": {
			logs: map[string]string{"scheduler+filters.json": `
				{"Action":"pass","Test":"TestA"}
				{"Action":"pass","Elapsed":1}`},
			row: "| `scheduler/filters` | 1 | 0 | 0 | 0 | 0 | 1 |",
		},
		"unknown failure": {
			logs: map[string]string{"auth.json": `
				{"Action":"fail","Test":"TestB/sub"}
				{"Action":"fail","Test":"TestB"}
				{"Action":"fail"}`},
			row:  "| `auth` | 0 | 1 | 0 | 0 | 0 | 0 |",
			list: "- `auth/TestB/sub`: **not known**",
			err:  "1 unknown failures: auth/TestB/sub",
		},
		"failure of a parent alone": {
			logs: map[string]string{"auth.json": `
				{"Action":"pass","Test":"TestB/sub"}
				{"Action":"fail","Test":"TestB"}
				{"Action":"fail"}`},
			row: "| `auth` | 1 | 1 | 0 | 0 | 0 | 0 |",
			err: "1 unknown failures: auth/TestB",
		},
		"test without an end": {
			logs: map[string]string{"auth.json": `
				{"Action":"run","Test":"TestHangs"}
				{"Action":"output","Output":"panic: test timed out after 10m0s"}
				{"Action":"fail","Elapsed":600}`},
			row: "| `auth` | 0 | 1 | 0 | 0 | 0 | 600 |",
			err: "auth/TestHangs",
		},
		"package without an end": {
			logs: map[string]string{"auth.json": `{"Action":"pass","Test":"TestA"}`},
			row:  "| `auth` | 1 | 0 | 0 | 0 | 0 | 0 |",
			list: "- `auth`: **did not end**",
			err:  "auth",
		},
		"package that does not compile": {
			logs: map[string]string{"auth.json": `
				{"Action":"build-fail"}
				{"Action":"fail"}`},
			row: "| `auth` | 0 | 0 | 0 | 0 | 0 | 0 |",
			err: "auth",
		},
		"no test": {
			logs: map[string]string{"auth.json": `{"Action":"pass"}`},
			row:  "| **all** | 0 | 0 | 0 | 0 | 0 | 0 |",
			err:  "no test ran",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tc.logs {
				write(t, filepath.Join(dir, file), text+"\n")
			}
			known := filepath.Join(dir, "known.txt")
			write(t, known, rules)
			var b strings.Builder
			err := run(dir, known, "", &b)
			if !strings.Contains(b.String(), tc.row+"\n") || !strings.Contains(b.String(), tc.list) {
				t.Errorf("table:\n%swant the row %s\nand the entry %s", b.String(), tc.row, tc.list)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error: %v, want %q", err, tc.err)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
