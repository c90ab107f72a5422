// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"strings"
	"testing"
)

// TestNames checks the errors for invalid names of plugins. The messages are those of Kubernetes.
func TestNames(t *testing.T) {
	lifecycle := []string{"NamespaceLifecycle"}
	for name, tc := range map[string]struct {
		only, enable, disable []string
		want                  string
	}{
		"none":    {nil, nil, nil, ""},
		"only":    {lifecycle, nil, nil, ""},
		"unknown": {[]string{"Foo"}, nil, nil, `admission-control plugin "Foo" is unknown`},
		"mixed": {[]string{"Foo", "NamespaceLifecycle"}, nil, lifecycle,
			`[admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually ` +
				`exclusive, admission-control plugin "Foo" is unknown]`},
		"always": {nil, nil, []string{"RestoreHold"},
			`disable-admission-plugins plugin "RestoreHold" cannot be disabled`},
		"overlapped": {nil, lifecycle, lifecycle,
			"[NamespaceLifecycle] in enable-admission-plugins and disable-admission-plugins overlapped"},
	} {
		got := ""
		if err := checkNames(tc.only, tc.enable, tc.disable); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestOnly checks that if Deps.Only is set, exactly the listed plugins run, even if they are not
// default plugins, and those that always run.
func TestOnly(t *testing.T) {
	running := func(d Deps) (names []string) {
		for _, p := range plugins() {
			if d.runs(p) {
				names = append(names, p.name)
			}
		}
		return names
	}
	if got := strings.Join(running(Deps{Only: []string{"ResourceQuota", "EventRateLimit"}}),
		" "); got != "RestoreHold EventRateLimit ResourceQuota" {
		t.Errorf("only two: %s", got)
	}
	got := running(Deps{Enable: []string{"EventRateLimit"}, Disable: []string{"ResourceQuota"}})
	if !slices.Contains(got, "EventRateLimit") || slices.Contains(got, "ResourceQuota") ||
		!slices.Contains(got, "LimitRanger") || slices.Contains(got, "AlwaysDeny") {
		t.Errorf("by default, with one more and one less: %v", got)
	}
}
