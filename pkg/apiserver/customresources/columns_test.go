// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"strings"
	"testing"
)

// nested returns an object that contains an object, and so on, to the given depth.
func nested(levels int) map[string]any {
	top := map[string]any{"x": int64(1)}
	for range levels {
		top = map[string]any{"a": top}
	}
	return top
}

// TestPathsAreBounded checks that paths of columns that would take too much time or memory are
// rejected or find nothing, and that similar harmless paths work.
func TestPathsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		path   string
		object map[string]any
		want   int // number of values found
	}{
		"union of unions":          {strings.Repeat("['a','a']", 16), nested(20), 0},
		"union in a filter":        {".[?(@" + strings.Repeat("['a','a']", 16) + "==1)]", nested(20), 0},
		"descent in a descent":     {"..*..*", nested(60), 0},
		"descent in a deep object": {"..x", nested(200), 0},
		"more than one template":   {"} {range ..*}{range ..*}{.x", nested(60), 0},
		"long":                     {strings.Repeat(".a", 700<<10), nested(5), 0},

		"field":                  {".a.a.x", nested(2), 1},
		"field of a deep object": {".a", nested(200), 1},
		"descent":                {"..x", nested(20), 1},
		"union":                  {".a['x','x']", nested(1), 2},
		"condition":              {`.status.conditions[?(@.type=="Ready")].status`, conditions(), 1},
		"last of several":        {".status.conditions[-1:].status", conditions(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := tc.path
			if !strings.HasPrefix(path, ".") {
				path = "." + path // validation of definitions requires paths to begin with a dot
			}
			p := parsePath(path)
			if p == nil {
				if tc.want > 0 {
					t.Fatal("the path is rejected")
				}
				return
			}
			found, err := p.find(tc.object)
			if err != nil || len(found) != tc.want {
				t.Errorf("%d values, want %d (%v)", len(found), tc.want, err)
			}
		})
	}
}

func conditions() map[string]any {
	return map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Synced", "status": "False"}, map[string]any{"type": "Ready", "status": "True"},
	}}}
}
