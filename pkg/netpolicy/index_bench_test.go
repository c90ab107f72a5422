// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPod adds and deletes a pod of another node in a cluster of 10,000 pods. It has one
// policy for every ten pods. 100 of the pods are on this node.
func BenchmarkPod(b *testing.B) {
	x := NewIndex()
	pod := func(i int) *Pod {
		return &Pod{
			Name:   types.NamespacedName{Namespace: fmt.Sprint("n", i%100), Name: fmt.Sprint("p", i)},
			Labels: map[string]string{"app": fmt.Sprint("a", i%1000)},
			IPs:    []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}, Local: i < 100,
		}
	}
	for i := range 1000 {
		np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", i%100),
			Name: fmt.Sprint("np", i)}}
		np.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprint("a", i)}
		np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", (i+100)%1000)}},
		}}}}
		x.SetPolicy(types.NamespacedName{Namespace: np.Namespace, Name: np.Name}, compile(np))
	}
	for i := range 10000 {
		p := pod(i)
		x.SetPod(p.Name, p)
	}
	x.Take()
	p := pod(20100)
	b.ReportAllocs()
	for b.Loop() {
		x.SetPod(p.Name, p)
		x.Take()
		x.SetPod(p.Name, nil)
		x.Take()
	}
}
