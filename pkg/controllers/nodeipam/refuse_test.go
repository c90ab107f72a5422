// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestRefuse checks that each node with a range that it may not use gets one event, and that other
// nodes get none.
func TestRefuse(t *testing.T) {
	events := record.NewFakeRecorder(10)
	c := &Controller{refused: map[types.UID]bool{}, Deps: controller.Deps{
		Events: events, Log: slog.New(slog.DiscardHandler),
		Options: controller.Options{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
	}}
	node := func(name, podRange string, age int64) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.Unix(1000-age, 0)}}
		n.Spec.PodCIDRs = []string{podRange}
		return n
	}
	nodes := []*v1.Node{
		node("liar", "10.244.0.0/24", 1), node("outside", "10.50.0.1/32", 1),
		node("n1", "10.244.0.0/24", 9), node("n2", "10.244.1.0/24", 8),
	}
	for range 2 {
		c.refuse(nodes)
	}
	close(events.Events)
	var got []string
	for e := range events.Events {
		got = append(got, e)
	}
	if len(got) != 2 || !strings.Contains(got[0], "an older node owns it") ||
		!strings.Contains(got[1], "10.50.0.1/32 is not routed: it is not inside") {
		t.Errorf("events %q", got)
	}
}
