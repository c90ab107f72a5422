// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestRightsOfProxies checks that each node's proxy in a cluster of "ctl cluster" has its own user
// name, and only the rights that it needs.
func TestRightsOfProxies(t *testing.T) {
	lab := newLab(t, nil)
	lab.apply(t, "rbac.yaml")
	lab.apply(t, "clusternetworkpolicy.yaml")
	const proxy = "system:kube-proxy:n1"
	group := []string{"keelson:proxies", "system:authenticated"}
	right := func(verb, apiGroup, resource, subresource string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: apiGroup, Resource: resource,
			Subresource: subresource, Namespace: "default"}
	}
	eventually(t, "the rights of the last role are known", func(context.Context) bool {
		return lab.may(t, "system:serviceaccount:kube-system:ingress-tls-controller", nil,
			right("list", "networking.k8s.io", "ingresses", ""))
	})
	// The user system:kube-proxy, which all proxies of Kubernetes share, has the same rights as in
	// Kubernetes.
	if !lab.may(t, "system:kube-proxy", nil, right("watch", "", "services", "")) {
		t.Error("upstream's proxy may not watch services")
	}
	for _, r := range []authorizationv1.ResourceAttributes{
		right("list", "", "pods", ""), right("watch", "", "pods", ""),
		right("list", "networking.k8s.io", "networkpolicies", ""), right("list", "", "namespaces", ""),
	} {
		if lab.may(t, "system:kube-proxy", nil, r) {
			t.Errorf("the name that all nodes shared may %s %s", r.Verb, r.Resource)
		}
	}
	eventually(t, "the rights of proxies", func(context.Context) bool {
		return lab.may(t, proxy, group, right("list", "policy.networking.k8s.io", "clusternetworkpolicies", "")) &&
			lab.may(t, proxy, group, right("list", "", "services", "")) &&
			lab.may(t, proxy, group, right("watch", "", "pods", ""))
	})
	for _, r := range []authorizationv1.ResourceAttributes{
		right("watch", "", "services", ""), right("watch", "discovery.k8s.io", "endpointslices", ""),
		right("list", "networking.k8s.io", "servicecidrs", ""),
		right("watch", "", "nodes", ""), right("watch", "networking.k8s.io", "networkpolicies", ""),
		right("list", "", "namespaces", ""),
		right("create", "", "events", ""), right("patch", "", "events", ""),
	} {
		if !lab.may(t, proxy, group, r) {
			t.Errorf("a proxy may not %s %s", r.Verb, r.Resource)
		}
	}
	for _, r := range []authorizationv1.ResourceAttributes{
		right("get", "", "secrets", ""), right("list", "", "configmaps", ""), right("create", "", "pods", ""),
		right("delete", "", "pods", ""), right("get", "", "pods", "log"),
		right("update", "", "nodes", ""), right("patch", "", "nodes", "status"),
		right("create", "", "nodes", "proxy"), right("get", "", "nodes", "proxy"),
		right("list", "", "endpoints", ""), right("delete", "", "events", ""),
		right("create", "", "serviceaccounts", "token"),
	} {
		if lab.may(t, proxy, group, r) {
			t.Errorf("a proxy may %s %s/%s", r.Verb, r.Resource, r.Subresource)
		}
	}
}
