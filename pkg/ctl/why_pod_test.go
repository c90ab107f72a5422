// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestWhyPod(t *testing.T) {
	c, ctx := testserver.Start(t, testserver.Options{}).Client, t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n, err := c.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"),
		v1.ResourcePods: resource.MustParse("9")}
	n.Status.Capacity = n.Status.Allocatable
	if _, err := c.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: v1.PodSpec{
		Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")},
		}}},
	}}
	if _, err := c.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, evicted, err := whyPod(ctx, c, "default", "large", 5)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printWhy(&out, w, evicted)
	want := `default/large fits on no node:
      1 nodes: Insufficient cpu (NodeResourcesFit)
It would fit if you
  lower the cpu request to 2 (1 nodes, for example a)
a: rejected: Insufficient cpu
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
