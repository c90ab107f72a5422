// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/restorehold"
)

// TestKeepNode checks that the Node of a control plane that joins a restored cluster has the label of control
// planes afterwards, whatever the restored store has.
func TestKeepNode(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	a := administrator{client: s.Client}
	c := example()
	list := s.Client.CoreV1().Nodes()
	labels := map[string]string{nodes.ControlPlaneLabel: ""}
	annotations := map[string]string{restorehold.Placeholder: ""}
	for name, tc := range map[string]struct {
		stored *v1.Node
		want   error
	}{
		"none":              {},
		"that of a kubelet": {stored: &v1.Node{}},
		"that of before":    {stored: &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
		"one that the restore made": {stored: &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}},
			want: errPlaceholder},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.stored != nil {
				tc.stored.Name = c.Node.Name
				if _, err := list.Create(t.Context(), tc.stored, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := a.keepNode(t.Context(), c); !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			}
			n, err := list.Get(t.Context(), c.Node.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := n.Labels[nodes.ControlPlaneLabel]; ok != (tc.want == nil) {
				t.Errorf("labels %v", n.Labels)
			}
			if err := list.Delete(t.Context(), c.Node.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
