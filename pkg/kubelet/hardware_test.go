// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestWipe checks that the kubelet deletes only ResourceSlices of its own node: those of the given
// driver, or those of all drivers if no driver is given.
func TestWipe(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := kubernetes.NewForConfig(s.UserConfig(t, "system:node:n1", "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1-a", "n1-b", "n1-c", "n2-a"} {
		node, driver, _ := strings.Cut(name, "-")
		_, err := s.Client.ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.ResourceSliceSpec{Driver: driver + ".example.com", NodeName: &node,
				Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct{ driver, left string }{{"b.example.com", "n1-a n1-c n2-a"}, {"", "n2-a"}, {"", "n2-a"}} {
		if err := wipe(Config{NodeName: "n1", Client: client})(t.Context(), step.driver); err != nil {
			t.Fatal(err)
		}
		list, err := s.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, one := range list.Items {
			left = append(left, one.Name)
		}
		if got := strings.Join(left, " "); got != step.left {
			t.Errorf("after %q: %s, want %s", step.driver, got, step.left)
		}
	}
}
