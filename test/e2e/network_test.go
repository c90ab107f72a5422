// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// askerManifest is a pod from which tests send requests.
const askerManifest = `apiVersion: v1
kind: Pod
metadata:
  name: asker
  labels:
    app: asker
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: asker
    image: busybox:1.36
    command: [sleep, "3600"]
`

// policyManifest is a NetworkPolicy that permits connections only from pods with a certain label.
const policyManifest = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: web
spec:
  podSelector:
    matchLabels:
      app: nginx
  ingress:
  - from:
    - podSelector:
        matchLabels:
          access: "yes"
    ports:
    - port: 80
`

// TestNetwork checks that a load balancer's address works from outside the pod network, and that a
// NetworkPolicy takes effect.
func TestNetwork(t *testing.T) {
	ns := namespace(t, "net")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	for _, manifest := range []string{webManifest, askerManifest} {
		if out, err := try(t, manifest, n("create", "-f", "-")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	ctl(t, n("expose", "deployment", "nginx-deployment", "--port=80", "--type=LoadBalancer")...)
	eventually(t, "pods ready", func() bool {
		return readyPods(t, ns, "app=nginx") == 2 &&
			readyPods(t, ns, "app=asker") == 1
	})

	// One attempt is enough, because the test calls asks repeatedly until the result is as
	// expected.
	asks := func() bool {
		_, err := try(t, "", n("exec", "asker", "--", "wget", "-q", "-T", "1", "-O", "-",
			"http://nginx-deployment/hostname")...)
		return err == nil
	}
	var address string
	eventually(t, "an address", func() bool {
		address = strings.TrimSpace(
			ctl(t, n("get", "service", "nginx-deployment", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")...))
		return address != ""
	})
	// outside sends a request from the link that connects the nodes.
	outside := func() bool {
		out, err := try(t, "", "cluster", "exec", "--name", clusterName, "--", "bash", "-c",
			"exec 3<>/dev/tcp/"+address+"/80 && printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 2 cat <&3")
		return err == nil && strings.Contains(out, "nginx-deployment-")
	}
	eventually(t, address+" answers", outside)
	eventually(t, "the service answers", asks)

	if out, err := try(t, policyManifest, n("create", "-f", "-")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the policy keeps the pod out", func() bool { return !asks() })
	ctl(t, n("label", "pod", "asker", "access=yes")...)
	eventually(t, "the policy lets the pod in", asks)
	ctl(t, n("delete", "networkpolicy", "web")...)
	eventually(t, address+" answers again", outside)
	testClusterPolicies(t, ns, asks)
}

// clusterPolicy is a ClusterNetworkPolicy that denies all pods access to the web server.
const clusterPolicy = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata:
  name: NAMESPACE-TIER
spec:
  tier: TIER
  priority: 7
  subject:
    pods:
      namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
      podSelector: {matchLabels: {app: nginx}}
  ingress:
  - name: strangers
    action: Deny
    from:
    - namespaces: {}
`

// testClusterPolicies checks ClusterNetworkPolicies together with a NetworkPolicy that permits the
// requests: each tier must be evaluated before or after it, as the API defines. It also checks that
// ctl reports which policy decides.
func testClusterPolicies(t *testing.T, ns string, asks func() bool) {
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	create := func(manifest string) {
		t.Helper()
		if out, err := try(t, manifest, n("create", "-f", "-")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	why := func(want string) {
		t.Helper()
		to := pods(t, ns, "app=nginx")[0].Name
		if out := ctl(t, "why", "connection", ns+"/asker", ns+"/"+to, "--port", "80"); !strings.Contains(out, want) {
			t.Errorf("got %s, want %s", out, want)
		}
	}
	for _, tier := range []string{"Baseline", "Admin"} {
		name := strings.ToLower(ns + "-" + tier)
		// The policy may not exist, so the error is ignored.
		t.Cleanup(func() { _, _ = try(t, "", "delete", "clusternetworkpolicy", name) })
		create(strings.NewReplacer("NAMESPACE-TIER", name, "NAMESPACE", ns, "TIER", tier).Replace(clusterPolicy))
		eventually(t, "the "+tier+" tier keeps the pod out", func() bool { return !asks() })
		why("denied by rule 0 (strangers) of cluster network policy " + name + " (" + tier + " tier)")
		if tier == "Baseline" {
			create(policyManifest)
			eventually(t, "the NetworkPolicy is before the Baseline tier", asks)
			why("allowed by " + ns + "/web")
		}
	}
	ctl(t, "delete", "clusternetworkpolicy", strings.ToLower(ns+"-admin"))
	eventually(t, "nothing is before the NetworkPolicy", asks)
}

// TestExhaustedRange checks that a pod on a node without a free pod address gets an event that
// names the exhausted range, and that the pod starts once an address is free.
func TestExhaustedRange(t *testing.T) {
	ns := namespace(t, "range")
	const node, dir = "n2", "/var/lib/cni/networks/keelson"
	on := func(script string) {
		t.Helper()
		ctl(t, "cluster", "exec", node, "--name", clusterName, "--", "sh", "-c", script)
	}
	prefix := strings.TrimSuffix(ctl(t, "get", "node", node, "-o", "jsonpath={.spec.podCIDR}"), "0/24")
	t.Cleanup(func() {
		_, _ = shared.command(context.Background(), "cluster", "exec", node, "--name", clusterName, "--", "sh",
			"-c", "cd "+dir+" && rm -f $(grep -l nobody "+prefix+"*)").CombinedOutput()
	})
	// The CNI plugin host-local stores one file for each allocated address, so these files occupy
	// all addresses.
	on("mkdir -p " + dir + " && cd " + dir + " && set -C && for i in $(seq 2 254); do echo nobody > " + prefix +
		"$i || true; done 2>/dev/null")
	if out, err := try(t, strings.Replace(askerManifest, "spec:", "spec:\n  nodeName: "+node, 1), "-n", ns,
		"create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "no IP addresses available in range set: " + prefix + "1-" + prefix + "254"
	eventually(t, "an event that names the range", func() bool {
		return strings.Contains(ctl(t, "-n", ns, "get", "events", "--field-selector",
			"involvedObject.name=asker,reason=FailedCreatePodSandBox"), want)
	})
	on("cd " + dir + " && rm $(grep -l nobody " + prefix + "* | head -n 1)")
	eventually(t, "the pod runs", func() bool { return readyPods(t, ns, "app=asker") == 1 })
}

// TestKilledNameServers kills a CoreDNS pod, and then the node-dns pod on the client's node. No DNS
// lookup may fail.
func TestKilledNameServers(t *testing.T) {
	ns := namespace(t, "names")
	if out, err := try(t, webManifest, "-n", ns, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctl(t, "-n", ns, "expose", "deployment", "nginx-deployment", "--port=80")
	eventually(t, "2 pods ready", func() bool { return readyPods(t, ns, "app=nginx") == 2 })
	whole := func() bool {
		return readyPods(t, "kube-system", "k8s-app=kube-dns") == 2 &&
			readyPods(t, "kube-system", "k8s-app=node-dns") == nodes
	}
	eventually(t, "all name servers ready", whole)
	l := startLoop(t, ns)
	victims := pods(t, "kube-system", "k8s-app=kube-dns")[:1]
	at := pods(t, ns, "")
	at = at[slices.IndexFunc(at, func(p v1.Pod) bool { return p.Name == "loop" }):]
	victims = append(victims, slices.DeleteFunc(pods(t, "kube-system", "k8s-app=node-dns"),
		func(p v1.Pod) bool { return p.Spec.NodeName != at[0].Spec.NodeName })...)
	for _, p := range victims {
		// Kill only the CoreDNS process; the pod's cgroup also contains the sandbox's pause
		// process.
		kill := `for p in $(pidof coredns); do grep -q "$0" /proc/$p/cgroup && kill -9 $p && exit; done; exit 1`
		ctl(t, "cluster", "exec", p.Spec.NodeName, "--name", clusterName, "--", "sh", "-c", kill, string(p.UID))
		l.check(t, "kill of "+p.Name)
		eventually(t, p.Name+" is back", func() bool {
			now, err := shared.client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
			return err == nil &&
				now.Status.ContainerStatuses[0].RestartCount > p.Status.ContainerStatuses[0].RestartCount && whole()
		})
		l.check(t, "return of "+p.Name)
	}
}
