// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestNodeCommands checks the flags of "ctl node", and runs the commands on nodes without pods.
func TestNodeCommands(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	config := "--kubeconfig=" + kubeconfig(t, s, nil)
	for _, name := range []string{"m1", "m2"} {
		if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	root := Command([]string{"ctl"}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	drain, _, err := root.Find([]string{"node", "drain"})
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"ignore-daemonsets": "true", "timeout": "5m0s",
		"delete-emptydir-data": "false", "force": "false"} {
		if f := drain.Flags().Lookup(flag); f.Value.String() != want || f.DefValue != want {
			t.Errorf("--%s=%s, want %s", flag, f.Value, want)
		}
	}
	if out, err := execute(t, "node", "drain", "m1", config); err != nil || out != "node/m1 cordoned\nnode/m1 drained\n" {
		t.Errorf("drain: %q, %v", out, err)
	}
	for _, tc := range []struct{ verb, want string }{
		{"fence", "node/m2 fenced\n"}, {"unfence", "node/m2 is not fenced any more\n"}, {"fence", "node/m2 fenced\n"},
	} {
		if out, err := execute(t, "node", tc.verb, "m2", config); err != nil || out != tc.want {
			t.Errorf("%s: %q, %v", tc.verb, out, err)
		}
	}
	if out, err := execute(t, "node", "remove", "m2", config); err != nil || !strings.Contains(out, "node/m2 deleted\n") {
		t.Errorf("remove: %q, %v", out, err)
	}
	list, err := s.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || !list.Items[0].Spec.Unschedulable {
		t.Errorf("nodes %v, %v", list, err)
	}
}
