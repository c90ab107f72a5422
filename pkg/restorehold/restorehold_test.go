// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restorehold_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/restorehold"
)

// TestHasIdentity checks which pods have an identity.
func TestHasIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		version, kind string
		controller    bool
		want          bool
	}{
		"stateful set":               {"apps/v1", "StatefulSet", true, true},
		"older version":              {"apps/v1beta1", "StatefulSet", true, true},
		"another group":              {"example.com/v1", "StatefulSet", true, false},
		"another kind":               {"apps/v1", "ReplicaSet", true, false},
		"owner but not a controller": {"apps/v1", "StatefulSet", false, false},
		"invalid version":            {"a/b/c", "StatefulSet", true, false},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: tc.version, Kind: tc.kind, Controller: &tc.controller}}}}
		if got := restorehold.HasIdentity(pod); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if restorehold.HasIdentity(&v1.Pod{}) {
		t.Error("a pod without owners has an identity")
	}
}

// TestNext checks that each value is higher than the one before, whatever the clock says.
func TestNext(t *testing.T) {
	for _, tc := range []struct {
		now       int64
		old, want string
	}{{1000, "", "1000"}, {1000, "7", "1000"}, {1000, "1000", "1001"}, {5, "2000", "2001"}, {1000, "x", "1000"}} {
		if got := restorehold.Next(time.Unix(tc.now, 0), tc.old); got != tc.want {
			t.Errorf("%d after %q: %s, want %s", tc.now, tc.old, got, tc.want)
		}
	}
}

// TestMessage checks that a message names some nodes in order, and how many more there are.
func TestMessage(t *testing.T) {
	var nodes []*v1.Node
	for i := range 7 {
		nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", 7-i)}})
	}
	if got := restorehold.Message(nodes); !strings.HasSuffix(got, ": n1, n2, n3, n4, n5 and more") {
		t.Error(got)
	}
	if got := restorehold.Message(nodes[5:]); !strings.HasSuffix(got, ": n1, n2") {
		t.Error(got)
	}
}
