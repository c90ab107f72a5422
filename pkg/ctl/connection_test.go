// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// TestWhyConnection checks that the output of "ctl why connection" names the policies that decide
// about the connection.
func TestWhyConnection(t *testing.T) {
	pod := func(namespace, name, ip string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}},
			Spec:       corev1.PodSpec{NodeName: "n1"},
			Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}},
		}
	}
	policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"name": "web"}},
	}}}}
	answers := map[string]any{
		"/api/v1/pods": corev1.PodList{Items: []corev1.Pod{pod("default", "web", "10.0.0.1"),
			pod("default", "job", "10.0.0.2"), pod("shop", "db", "10.0.0.3")}},
		"/api/v1/namespaces": corev1.NamespaceList{
			Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
				{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}},
		"/api/v1/nodes": corev1.NodeList{Items: []corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "192.0.2.1"}}},
		}}},
		"/apis/networking.k8s.io/v1/networkpolicies": networkingv1.NetworkPolicyList{
			Items: []networkingv1.NetworkPolicy{policy}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answers[r.URL.Path] == nil {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	defer s.Close()
	why := func(from, to, want string) {
		t.Helper()
		var out bytes.Buffer
		args := []string{"ctl", "why", "connection", from, to, "--port", "5432", "--server", s.URL,
			"--kubeconfig", "/dev/null"}
		if err := Run(t.Context(), args, strings.NewReader(""), &out, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s to %s: got\n%s", from, to, out.String())
		}
	}
	// These cases are for a cluster without the kind ClusterNetworkPolicy.
	for _, tc := range []struct{ from, to, want string }{
		{"web", "shop/db", "default/web (10.0.0.1) → shop/db (10.0.0.3), TCP 5432: allowed\n  egress:  no " +
			"policy applies\n  ingress: allowed by shop/db\n"},
		{"10.0.0.2", "10.0.0.3", "default/job (10.0.0.2) → shop/db (10.0.0.3), TCP 5432: denied\n  egress:  " +
			"no policy applies\n  ingress: isolated by shop/db, and no policy allows it\n"},
		{"pod/web", "192.0.2.7", "default/web (10.0.0.1) → 192.0.2.7, TCP 5432: allowed\n  egress:  no " +
			"policy applies\n  ingress: no policy applies\n"},
		{"web", "192.0.2.1", "default/web (10.0.0.1) → 192.0.2.1, TCP 5432: allowed\n  egress:  always " +
			"allowed between a pod and its own node\n  ingress: no policy applies\n"},
	} {
		why(tc.from, tc.to, tc.want)
	}

	everybody := []policyv1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}}
	cluster := func(name string, tier policyv1alpha2.Tier, subject map[string]string,
		rules ...policyv1alpha2.ClusterNetworkPolicyIngressRule) policyv1alpha2.ClusterNetworkPolicy {
		p := policyv1alpha2.ClusterNetworkPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: policyv1alpha2.GroupVersion.String(),
				Kind: "ClusterNetworkPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		}
		p.Spec.Tier, p.Spec.Ingress = tier, rules
		p.Spec.Subject.Pods = &policyv1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: subject}}
		return p
	}
	answers["/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"] = policyv1alpha2.ClusterNetworkPolicyList{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1alpha2.GroupVersion.String(), Kind: "ClusterNetworkPolicyList"},
		Items: []policyv1alpha2.ClusterNetworkPolicy{
			cluster("base", policyv1alpha2.BaselineTier, nil,
				policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: "Deny", From: everybody}),
			cluster("admin", policyv1alpha2.AdminTier, map[string]string{"name": "db"},
				policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: "Accept", Name: "jobs",
					From: []policyv1alpha2.ClusterNetworkPolicyIngressPeer{{
						Pods: &policyv1alpha2.NamespacedPod{
							PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "job"}}},
					}}},
				policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: "Pass", From: everybody},
				policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: "Deny",
					From: []policyv1alpha2.ClusterNetworkPolicyIngressPeer{{}}}),
		},
	}
	for _, tc := range []struct{ from, to, want string }{
		{"job", "shop/db", "default/job (10.0.0.2) → shop/db (10.0.0.3), TCP 5432: allowed\n  egress:  no policy applies\n" +
			"  ingress: accepted by rule 0 (jobs) of cluster network policy admin (Admin tier)\n"},
		{"web", "shop/db", "default/web (10.0.0.1) → shop/db (10.0.0.3), TCP 5432: allowed\n  egress:  no policy applies\n" +
			"  ingress: passed on by rule 1 of cluster network policy admin (Admin tier); allowed by shop/db\n"},
		{"10.9.9.9", "shop/db", "10.9.9.9 → shop/db (10.0.0.3), TCP 5432: denied\n  egress:  no policy applies\n" +
			"  ingress: denied by rule 2 of cluster network policy admin (Admin tier), which cannot be " +
			"evaluated: peer: must have exactly one field that is known\n"},
		{"shop/db", "web", "shop/db (10.0.0.3) → default/web (10.0.0.1), TCP 5432: denied\n  egress:  no policy applies\n" +
			"  ingress: denied by rule 0 of cluster network policy base (Baseline tier)\n"},
	} {
		why(tc.from, tc.to, tc.want)
	}
}
