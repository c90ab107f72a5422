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
)

// TestWhyConnection: the answer names the policies that decide.
func TestWhyConnection(t *testing.T) {
	pod := func(namespace, name, ip string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}},
			Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}},
		}
	}
	policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "web"}},
	}}}}
	answers := map[string]any{
		"/api/v1/pods":       corev1.PodList{Items: []corev1.Pod{pod("default", "web", "10.0.0.1"), pod("default", "job", "10.0.0.2"), pod("shop", "db", "10.0.0.3")}},
		"/api/v1/namespaces": corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, {ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}},
		"/apis/networking.k8s.io/v1/networkpolicies": networkingv1.NetworkPolicyList{Items: []networkingv1.NetworkPolicy{policy}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	defer s.Close()
	for _, tc := range []struct{ from, to, want string }{
		{"web", "shop/db", "default/web (10.0.0.1) → shop/db (10.0.0.3), TCP 5432: allowed\n  egress:  no policy is about it\n  ingress: allowed by shop/db\n"},
		{"10.0.0.2", "10.0.0.3", "default/job (10.0.0.2) → shop/db (10.0.0.3), TCP 5432: denied\n  egress:  no policy is about it\n  ingress: isolated by shop/db; none allows it\n"},
		{"pod/web", "192.0.2.1", "default/web (10.0.0.1) → 192.0.2.1, TCP 5432: allowed\n  egress:  no policy is about it\n  ingress: no policy is about it\n"},
	} {
		var out bytes.Buffer
		args := []string{"ctl", "why", "connection", tc.from, tc.to, "--port", "5432", "--server", s.URL, "--kubeconfig", "/dev/null"}
		if err := Run(t.Context(), args, strings.NewReader(""), &out, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != tc.want {
			t.Errorf("%s to %s: got\n%s", tc.from, tc.to, out.String())
		}
	}
}
