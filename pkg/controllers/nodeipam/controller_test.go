// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam_test

import (
	"context"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/nodeipam"
)

// TestRanges checks that each node gets a range that no other node has, not even through another
// client, and that the range of a deleted node is assigned again.
func TestRanges(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	o := controller.Options{AllocateNodeCIDRs: true,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/22")}, NodeMasks: []int{24}}
	controllertest.Run(t, s, o, nodeipam.New)
	create := func(name, cidr string) {
		t.Helper()
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if cidr != "" {
			n.Spec.PodCIDR, n.Spec.PodCIDRs = cidr, []string{cidr}
		}
		if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ranges := func(want int) map[string]string {
		t.Helper()
		var got map[string]string
		controllertest.Eventually(t, "ranges", func(ctx context.Context) (any, bool) {
			list, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			got = map[string]string{}
			for _, n := range list.Items {
				if n.Spec.PodCIDR != "" {
					got[n.Spec.PodCIDR] = n.Name
				}
			}
			return got, err == nil && len(got) == want
		})
		return got
	}
	create("given", "10.244.1.0/24")
	for _, name := range []string{"a", "b", "c"} {
		create(name, "")
	}
	if got := ranges(4); got["10.244.1.0/24"] != "given" {
		t.Errorf("%v", got)
	}
	if err := s.Client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create("d", "")
	ranges(4)
}
