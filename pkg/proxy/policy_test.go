// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/netpolicy"
)

// enforce runs the agent of network policies on the node with the given credentials. The returned
// function stops the agent; its tables stay.
func (c *cluster) enforce(as *rest.Config, audit time.Duration) (stop func()) {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(as)
	c.must(err)
	custom, err := dynamic.NewForConfig(as)
	c.must(err)
	agent, err := netpolicy.New(netpolicy.Config{Node: "n1", IPv6: true, Audit: audit, NetNS: int(c.ns)}, netpolicy.Deps{
		Client: client, Custom: custom, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	})
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
		done <- nil
	}
	c.t.Cleanup(stop)
	return stop
}

// account creates the pods' service account.
func (c *cluster) account() {
	c.t.Helper()
	_, err := c.client.CoreV1().ServiceAccounts("default").Create(c.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	c.must(err)
}

// register creates the API object of a pod of this node.
func (c *cluster) register(p *pod, labels map[string]string) {
	c.t.Helper()
	ctx := context.Background()
	o, err := c.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: "n1", AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: targetPort}},
		}}},
	}, metav1.CreateOptions{})
	c.must(err)
	o.Status.Phase = corev1.PodRunning
	o.Status.PodIP, o.Status.PodIPs = p.v4.String(), []corev1.PodIP{{IP: p.v4.String()}, {IP: p.v6.String()}}
	_, err = c.client.CoreV1().Pods("default").UpdateStatus(ctx, o, metav1.UpdateOptions{})
	c.must(err)
}

// refused waits until a new connection from the namespace gets no answer.
func (c *cluster) refused(from *space, to string) {
	c.t.Helper()
	c.eventually(to+" does not answer", func() bool {
		conn, err := from.dial("tcp", to, 300*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// TestNetworkPolicy sends packets through the nftables tables of services and of network policies
// together.
func TestNetworkPolicy(t *testing.T) {
	c := newCluster(t, nil)
	c.account()
	server, friend, stranger := c.pod(), c.pod(), c.pod()
	c.register(server, map[string]string{"app": "server"})
	c.register(friend, map[string]string{"app": "friend"})
	c.register(stranger, nil)
	web := vip(c.svc("web", corev1.ProtocolTCP, nil, on("n1", server)))
	v4, v6 := server.v4.String()+":8080", "["+server.v6.String()+"]:8080"
	stop := c.enforce(c.server.Config, time.Hour)

	policies := c.client.NetworkingV1().NetworkPolicies("default")
	policy, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}}},
	}, metav1.CreateOptions{})
	c.must(err)
	for _, to := range []string{web, v4, v6} {
		c.refused(friend.space, to)
		c.refused(c.outside, to)
	}
	c.reachable(c.space, v4)      // a node can always reach its pods
	c.reachable(server.space, v4) // a pod can always reach itself
	c.reachable(server.space, web)

	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "friend"}}},
			{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.64/26"}}},
		},
		Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("web"))},
			{Port: ptr.To(intstr.FromInt32(1)), EndPort: ptr.To(int32(80))}},
	}}
	policy, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{})
	c.must(err)
	for _, to := range []string{web, v4, v6} {
		c.reachable(friend.space, to)
	}
	c.reachable(c.outside, v4)
	c.refused(stranger.space, v4)
	c.refused(stranger.space, v6)

	// The rules stay when the agent stops. The next agent replaces them by its own.
	stop()
	c.refused(stranger.space, v4)
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	policy.Spec.PodSelector = metav1.LabelSelector{}
	policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{
		{To: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}}}}}}
	policy.Spec.Ingress = nil
	_, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{})
	c.must(err)
	stop = c.enforce(c.server.Config, time.Hour)
	c.reachable(stranger.space, v4)
	c.reachable(stranger.space, web)
	late := c.pod() // a new pod, for which the kernel has no neighbour entries yet
	c.register(late, nil)
	c.refused(late.space, friend.v4.String()+":8080")
	c.reachable(late.space, v6)
	c.refused(stranger.space, friend.v4.String()+":8080")

	c.must(policies.Delete(t.Context(), "p", metav1.DeleteOptions{}))
	c.reachable(stranger.space, friend.v4.String()+":8080")
	stop()
}
