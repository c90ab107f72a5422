// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/cluster"
	"keelson.dev/keelson/pkg/release"
)

// TestVerbs checks that all verbs of kubectl exist, and that Keelson's own verbs exist only if the
// program is named ctl.
func TestVerbs(t *testing.T) {
	verbs := strings.Fields(
		`annotate api-resources api-versions apply attach auth autoscale certificate cluster-info completion config
		cordon cp create debug delete describe diff drain edit events exec explain expose get kustomize label logs options patch plugin
		port-forward proxy replace rollout run scale set taint top uncordon version wait`)
	for name, own := range map[string]bool{"ctl": true, "kubectl": false} {
		t.Run(name, func(t *testing.T) {
			root := Command([]string{"/somewhere/" + name}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
			have := map[string]bool{}
			for _, c := range root.Commands() {
				have[c.Name()] = true
			}
			for _, v := range verbs {
				if !have[v] {
					t.Errorf("no verb %s", v)
				}
			}
			if f := root.PersistentFlags().Lookup("v"); f == nil || f.Shorthand != "v" {
				t.Errorf("verbosity: %v", f)
			}
			for _, v := range []string{"check-downgrade", "cluster", "init", "join", "node", "token", "webhooks", "why"} {
				if have[v] != own {
					t.Errorf("%s: %t, want %t", v, have[v], own)
				}
			}
		})
	}
}

// TestClusterErrors checks that wrong arguments are rejected before a command changes anything.
func TestClusterErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
		is   error
	}{
		"unknown cluster": {args: []string{"status", "--name", "nowhere-at-all"}, is: cluster.ErrNoCluster},
		"bad name":        {args: []string{"up", "--name", "No"}, want: "a cluster name must be"},
		"egress":          {args: []string{"up", "--egress"}, is: errEgress},
		"exec, no dash":   {args: []string{"exec", "n1", "true"}, want: "and a command"},
		"exec, nothing":   {args: []string{"exec", "n1", "--"}, want: "and a command"},
		"node, no name":   {args: []string{"node", "kill"}, want: "accepts 1 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), append([]string{"ctl", "cluster"}, tc.args...), strings.NewReader(""),
				&bytes.Buffer{}, &bytes.Buffer{})
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestPreferences checks that an alias in kuberc expands to its command, options and arguments.
func TestPreferences(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kuberc")
	preferences := `apiVersion: kubectl.config.k8s.io/v1beta1
kind: Preference
aliases:
- name: mine
  command: version
  options: [{name: client, default: "true"}]
  appendArgs: ["--output=json"]
`
	if err := os.WriteFile(file, []byte(preferences), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Run(t.Context(), []string{"ctl", "mine", "--kuberc=" + file}, strings.NewReader(""), &out,
		&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, `"clientVersion": {`) {
		t.Error(got)
	}
}

// TestVersion checks that "ctl version" prints Keelson's version in addition to Kubernetes'
// version, and that "kubectl version" and JSON output do not have it.
func TestVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		own  bool
	}{
		"ctl":     {[]string{"ctl", "version", "--client"}, true},
		"json":    {[]string{"ctl", "version", "--client", "-o", "json"}, false},
		"kubectl": {[]string{"kubectl", "version", "--client"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			out := &bytes.Buffer{}
			root := Command(tc.args, strings.NewReader(""), out, &bytes.Buffer{})
			root.SetArgs(tc.args[1:])
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			line := "Keelson Version: " + release.Version + "\n"
			if got := strings.Contains(out.String(), line); got != tc.own {
				t.Errorf("Keelson's version shown: %t, want %t, in\n%s", got, tc.own, out)
			}
		})
	}
}
