// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// resources are the API resources of the kinds in the tests' manifests.
var resources = map[string]schema.GroupVersionResource{
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"ClusterRole":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":       {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"NetworkPolicy":            {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"ClusterNetworkPolicy": {Group: "policy.networking.k8s.io", Version: "v1alpha2",
		Resource: "clusternetworkpolicies"},
}

// custom returns an administrator's client for the resource of a kind.
func (c *cluster) custom(kind string) dynamic.ResourceInterface {
	c.t.Helper()
	client, err := dynamic.NewForConfig(c.server.Config)
	c.must(err)
	if kind == "NetworkPolicy" {
		return client.Resource(resources[kind]).Namespace("default")
	}
	return client.Resource(resources[kind])
}

// manifest creates or updates the objects in a YAML text whose names begin with prefix.
func (c *cluster) manifest(text, prefix string) {
	c.t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		c.must(err)
		o := &unstructured.Unstructured{}
		c.must(yaml.Unmarshal(doc, &o.Object))
		if strings.HasPrefix(o.GetName(), prefix) {
			c.must(c.apply(o))
		}
	}
}

func (c *cluster) apply(o *unstructured.Unstructured) error {
	_, err := c.custom(o.GetKind()).Apply(context.Background(), o.GetName(), o,
		metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

func (c *cluster) file(path, prefix string) {
	c.t.Helper()
	text, err := os.ReadFile(path)
	c.must(err)
	c.manifest(string(text), prefix)
}

// adminTier is an Admin-tier policy that accepts connections from friends to servers. The tests
// replace ACTION by the action for connections from all other pods.
const adminTier = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata:
  name: admin
spec:
  tier: Admin
  priority: 10
  subject:
    pods:
      podSelector: {matchLabels: {app: server}}
  ingress:
  - action: Accept
    from:
    - pods:
        namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
        podSelector: {matchLabels: {app: friend}}
    protocols:
    - tcp: {destinationPort: {range: {start: 8000, end: 8080}}}
  - action: ACTION
    from:
    - namespaces: {}
`

// forStrangers is a NetworkPolicy for the namespace of the servers.
const forStrangers = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: strangers
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
  - from:
    - podSelector: {matchLabels: {app: stranger}}
`

// baselineTier is a Baseline-tier policy that allows pods to connect only to servers.
const baselineTier = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata:
  name: baseline
spec:
  tier: Baseline
  priority: 0
  subject:
    namespaces: {}
  egress:
  - action: Accept
    to:
    - pods: {podSelector: {matchLabels: {app: server}}}
    protocols:
    - destinationNamedPort: web
  - action: Deny
    to:
    - networks: ["0.0.0.0/0", "::/0"]
    - nodes: {}
`

// nodeOnly is a NetworkPolicy that isolates strangers, so that they can connect only to their node.
const nodeOnly = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: node-only
spec:
  podSelector: {matchLabels: {app: stranger}}
  policyTypes: [Egress]
`

// TestClusterNetworkPolicy sends packets through the tables of all three tiers. The agent has only
// the permissions that clusters grant it.
func TestClusterNetworkPolicy(t *testing.T) {
	c := newCluster(t, nil)
	c.account()
	(&pod{space: c.space, name: "node"}).serve()
	(&pod{space: c.outside, name: "outside"}).serve()
	server, friend, stranger := c.pod(), c.pod(), c.pod()
	c.register(server, map[string]string{"app": "server"})
	c.register(friend, map[string]string{"app": "friend"})
	c.register(stranger, map[string]string{"app": "stranger"})
	web := vip(c.svc("web", "TCP", nil, on("n1", server)))
	v4, v6, outside, gateway := server.v4.String()+":8080", "["+server.v6.String()+"]:8080", "192.0.2.2:8080",
		"10.244.1.1:8080"

	// The kind ClusterNetworkPolicy is not defined, and the agent may not even list the
	// definitions. It must still enforce NetworkPolicies.
	c.file("../provision/manifests/rbac.yaml", "keelson:network-policy")
	c.manifest(forStrangers, "")
	proxy := c.server.UserConfig(t, "system:kube-proxy:n1", "keelson:proxies")
	stop := c.enforce(proxy, 100*time.Millisecond)
	c.refused(friend.space, v4)
	c.reachable(stranger.space, v4)

	// After the kind is defined, the agent must notice it and enforce its objects.
	c.file("../provision/manifests/clusternetworkpolicy.yaml", "")
	c.eventually("an Admin tier", func() bool {
		o := &unstructured.Unstructured{}
		c.must(yaml.Unmarshal([]byte(strings.Replace(adminTier, "ACTION", "Deny", 1)), &o.Object))
		return c.apply(o) == nil // retry, because the server serves the new kind with a short delay
	})
	for _, to := range []string{v4, v6, web} {
		c.reachable(friend.space, to)
		c.refused(stranger.space, to)
	}
	c.manifest(strings.Replace(adminTier, "ACTION", "Pass", 1), "")
	for _, to := range []string{v4, v6, web} {
		c.reachable(friend.space, to)
		c.reachable(stranger.space, to)
	}
	c.refused(c.outside, v4) // the Admin tier passes, and the NetworkPolicy rejects the connection

	// No Admin tier or NetworkPolicy selects friends, only the Baseline tier. It applies to
	// connections to their own node too.
	c.reachable(friend.space, outside)
	c.reachable(friend.space, gateway)
	c.manifest(baselineTier, "")
	c.refused(friend.space, outside)
	c.refused(friend.space, gateway)
	c.must(c.in(func() error {
		l, err := net.Listen("tcp", "10.244.1.1:53")
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
	names, err := friend.dial("tcp", "10.244.1.1:53", patience) // a pod can always send DNS queries to its node
	c.must(err)
	names.Close()
	late := c.pod()
	c.register(late, map[string]string{"app": "friend"})
	c.refused(late.space, outside)
	c.reachable(late.space, v6)
	c.manifest(nodeOnly, "")
	c.reachable(stranger.space, gateway)
	c.refused(stranger.space, v4)

	// The rules stay when the agent stops. The next agent must load all tiers before it changes any
	// rules.
	stop()
	c.refused(late.space, outside)
	stop = c.enforce(proxy, time.Hour)
	c.refused(late.space, outside)
	c.reachable(late.space, v6)

	// After the definition is deleted, only NetworkPolicies are enforced.
	c.must(c.custom("CustomResourceDefinition").Delete(t.Context(),
		"clusternetworkpolicies.policy.networking.k8s.io", metav1.DeleteOptions{}))
	c.reachable(late.space, outside)
	c.refused(friend.space, v4)
	c.reachable(stranger.space, gateway)
	c.must(c.custom("NetworkPolicy").Delete(t.Context(), "strangers", metav1.DeleteOptions{}))
	c.reachable(friend.space, v4)
	stop()
}

// TestClusterNetworkPolicyRefused checks that the API server rejects policies with rules that the
// agent does not enforce.
func TestClusterNetworkPolicyRefused(t *testing.T) {
	c := &cluster{node: &node{space: own(t)}}
	c.serve()
	c.file("../provision/manifests/clusternetworkpolicy.yaml", "")
	policy := func(to string) error {
		o := &unstructured.Unstructured{}
		c.must(yaml.Unmarshal([]byte(baselineTier), &o.Object))
		o.SetName("refused")
		rule := map[string]any{}
		c.must(yaml.Unmarshal([]byte(to), &rule))
		c.must(unstructured.SetNestedSlice(o.Object, []any{rule}, "spec", "egress"))
		_, err := c.custom(o.GetKind()).Create(t.Context(), o,
			metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore})
		return err
	}
	c.eventually("the definition", func() bool { return !apierrors.IsNotFound(policy("{action: Accept}")) })
	for _, tc := range [][2]string{
		{"{action: Accept, to: [{domainNames: [example.com]}]}",
			"should have at least 1 properties"},
		{"{action: Accept, to: [{networks: [10.0.0.0/8], namespaces: {}}]}",
			"must have at most 1 item"},
		{"{action: Accept, to: [{networks: [10.0.0.0]}]}",
			"Invalid CIDR format provided"},
		{"{action: Allow, to: [{nodes: {}}]}",
			`supported values: "Accept", "Deny", "Pass"`},
		{"{action: Deny, to: [{nodes: {}}], protocols: [{destinationNamedPort: web}]}",
			"cannot be set with namedPorts"},
		{"{action: Deny, to: [{nodes: {}}], protocols: [{tcp: {destinationPort: {range: {start: 9, end: 8}}}}]}",
			"Start port must be less than End port"},
	} {
		rule, want := tc[0], tc[1]
		if err := policy(rule); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if err := policy(
		"{action: Deny, to: [{nodes: {}}], protocols: [{sctp: {destinationPort: {number: 9}}}]}"); err != nil {
		t.Error(err)
	}
}
