// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/restorehold"
)

// Marks follows the nodes that are unreported or fenced; see package restorehold. It reads no other nodes.
type Marks struct {
	cache *follow.Cache[corev1.Node, corev1.Node]
}

// NewMarks returns a Marks without nodes. Run fills it.
func NewMarks(client kubernetes.Interface, clk clock.Clock, log *slog.Logger) *Marks {
	return &Marks{follow.NewCache(follow.Config[corev1.Node, corev1.Node]{
		// A fenced node has this label, too: the admission plugin RestoreHold sees to that.
		Source: follow.Source(client.CoreV1().Nodes(), follow.Labels(restorehold.Unreported)),
		Keep: func(n *corev1.Node) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
		},
		Clock: clk, Log: log,
	})}
}

// Run follows the nodes until ctx is done.
func (m *Marks) Run(ctx context.Context) { m.cache.Run(ctx) }

// Synced reports whether the marks of all nodes are known.
func (m *Marks) Synced() bool {
	select {
	case <-m.cache.Synced():
		return true
	default:
		return false
	}
}

// Fenced reports whether a node is fenced. known is false until the marks of all nodes are known.
func (m *Marks) Fenced(node string) (fenced, known bool) {
	if !m.Synced() {
		return false, false
	}
	n := m.cache.Get(types.NamespacedName{Name: node})
	return n != nil && restorehold.IsFenced(n), true
}

// Waiting returns the nodes for which the cluster waits. They have only names and labels.
func (m *Marks) Waiting() []*corev1.Node {
	if m.cache.Len() == 0 {
		return nil
	}
	return restorehold.WaitingOf(slices.Collect(maps.Values(m.cache.All())))
}
