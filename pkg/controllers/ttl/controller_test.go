// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ttl

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestNext(t *testing.T) {
	at := 0
	for _, tc := range []struct{ nodes, seconds int }{
		{1, 0}, {100, 0}, {101, 15}, {95, 15}, {90, 15}, {89, 0}, {700, 30}, {5000, 300}, {1800, 300}, {1799, 60}, {0, 0},
	} {
		at = next(at, tc.nodes)
		if got := steps()[at].seconds; got != tc.seconds {
			t.Errorf("%d nodes: %d seconds, want %d", tc.nodes, got, tc.seconds)
		}
	}
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "ttl-controller", controller.Options{}, New)
	nodes := s.Client.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "annotation", func(ctx context.Context) (any, bool) {
		n, err := nodes.Get(ctx, "n", metav1.GetOptions{})
		return n, err == nil && n.Annotations[v1.ObjectTTLAnnotationKey] == "0"
	})
}
