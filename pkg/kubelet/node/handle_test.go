// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNewestVersion checks that an older version of the node does not replace a newer one.
func TestNewestVersion(t *testing.T) {
	h := NewHandle(Identity{})
	for _, step := range []struct{ saw, want string }{{"9", "9"}, {"10", "10"}, {"9", "10"}, {"11", "11"}} {
		h.saw(&v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: step.saw}})
		if got := h.Current().ResourceVersion; got != step.want {
			t.Errorf("after %s: %s, want %s", step.saw, got, step.want)
		}
	}
}
