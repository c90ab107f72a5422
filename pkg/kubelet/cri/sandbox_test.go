// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPodLogDir checks that the log directory can be created even for the longest names that the
// API accepts, and that each pod has a directory of its own.
func TestPodLogDir(t *testing.T) {
	root := t.TempDir()
	const uid = "6f1f1b5a-3c53-4b5e-9a83-1d1d51f0a9c2"
	seen := map[string]bool{}
	for _, c := range []struct {
		namespace, name string
		uid             types.UID
		want            string // the expected name; empty if the name must be truncated
	}{
		{"ns", "p", uid, "ns_p_" + uid},
		{"ns", strings.Repeat("p", 215), uid, "ns_" + strings.Repeat("p", 215) + "_" + uid},
		{"ns", strings.Repeat("p", 216), types.UID("a" + uid[1:]), ""},
		{strings.Repeat("n", 63), strings.Repeat("p", 253), uid, ""},
		{strings.Repeat("n", 63), strings.Repeat("p", 253), "another", ""},
		{strings.Repeat("m", 63), strings.Repeat("p", 253), uid, ""},
	} {
		dir := PodLogDir(root, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, UID: c.uid}})
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Error(err)
		}
		base := filepath.Base(dir)
		parts := strings.Split(base, "_")
		if c.want != "" && base != c.want || len(parts) != 3 || parts[0] != c.namespace ||
			!strings.HasPrefix(c.name, parts[1]) || parts[2] != string(c.uid) {
			t.Errorf("%s of %s/%s", base, c.namespace, c.name)
		}
		if seen[dir] {
			t.Errorf("%s twice", base)
		}
		seen[dir] = true
	}
}
