// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestStoreTellsOfEachChange: what is told, and in which order, also after a list
// that shows what the watch has missed.
func TestStoreTellsOfEachChange(t *testing.T) {
	s, told := NewStore(nil), []string(nil)
	s.Tell(func(old, pod *v1.Pod) {
		was := "nothing"
		if old != nil {
			was = old.ResourceVersion
		}
		told = append(told, fmt.Sprint(pod.UID, " ", was, "->", pod.ResourceVersion))
		if s.Get(pod.Namespace, pod.Name) != pod {
			t.Errorf("told of %s before it is kept", pod.UID)
		}
	}, func(pod *v1.Pod) { told = append(told, fmt.Sprint(pod.UID, " gone")) })
	of := func(name, uid, version string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}}
	}
	if s.HasSynced() {
		t.Error("synced before the first list")
	}
	for _, err := range []error{
		s.Replace([]any{of("a", "a1", "1"), of("b", "b1", "2"), of("c", "c1", "3")}, "3"),
		s.Add(of("d", "d1", "4")), s.Update(of("a", "a1", "5")), s.Delete(of("b", "b1", "6")),
		s.Replace([]any{of("a", "a2", "9"), of("c", "c1", "3")}, "9"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"a1 nothing->1", "b1 nothing->2", "c1 nothing->3", "d1 nothing->4", "a1 1->5", "b1 gone",
		"a1 gone", "a2 nothing->9", "c1 3->3", "d1 gone",
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Error("told (-want +got):\n", d)
	}
	if !s.HasSynced() || s.Get("ns", "b") != nil || s.Get("ns", "d") != nil {
		t.Error("not synced, or pods are kept that are gone")
	}
	if err := s.Add(&v1.Node{}); err == nil {
		t.Error("a node is taken for a pod")
	}
}
