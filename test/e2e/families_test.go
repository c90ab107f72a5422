// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// familiesManifest has a web server on each of up to two nodes, with a host port, a Service with
// all IP families of the cluster, and a pod that sends requests.
const familiesManifest = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-deployment
spec:
  replicas: NODES
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
      - name: nginx
        image: nginx:1.27
        ports:
        - containerPort: 80
          hostPort: 8099
---
apiVersion: v1
kind: Service
metadata:
  name: nginx-deployment
spec:
  type: LoadBalancer
  ipFamilyPolicy: PreferDualStack
  selector:
    app: nginx
  ports:
  - port: 80
---
` + askerManifest

// TestFamilies checks for clusters of each IP family that pods, Services, host ports and DNS names
// can be reached by all IP families of the cluster.
func TestFamilies(t *testing.T) {
	for family, tc := range map[string]struct {
		nodes    string
		families int
	}{
		"dual": {"2", 2},
		"ipv6": {"1", 1},
	} {
		t.Run(family, func(t *testing.T) { testFamily(t, family, tc.nodes, tc.families) })
	}
}

// cluster is a cluster that a test creates beside the shared one.
type cluster struct{ name, kubeconfig string }

// newCluster creates a cluster that is removed when the test ends.
func newCluster(t *testing.T, name string, flags ...string) *cluster {
	t.Helper()
	c := &cluster{name: "e2e-" + name, kubeconfig: filepath.Join(shared.dir, name+".conf")}
	downAtEnd(t, c.name)
	ctl(t, append([]string{"cluster", "up", "--name", c.name, "--data-dir", filepath.Join(shared.dir, name),
		"--kubeconfig", c.kubeconfig}, flags...)...)
	eventually(t, "a service account", func() bool {
		_, err := try(t, "", "--kubeconfig", c.kubeconfig, "get", "serviceaccount", "default")
		return err == nil
	})
	return c
}

func (c *cluster) ctl(t *testing.T, args ...string) string {
	t.Helper()
	return ctl(t, append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

func (c *cluster) create(t *testing.T, manifest string) {
	t.Helper()
	if out, err := try(t, manifest, "--kubeconfig", c.kubeconfig, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func testFamily(t *testing.T, family, nodes string, families int) {
	c := newCluster(t, family, "--nodes", nodes, "--ip-family", family)
	name, kubeconfig := c.name, c.kubeconfig
	k := func(args ...string) string { return c.ctl(t, args...) }
	c.create(t, strings.Replace(familiesManifest, "NODES", nodes, 1))
	k("rollout", "status", "deployment", "nginx-deployment")
	k("wait", "--for=condition=Ready", "pod/asker")
	// ask sends a request from a pod. outside sends a request from the link that connects the
	// nodes.
	ask := func(address, path string) (string, error) {
		return try(t, "", "--kubeconfig", kubeconfig, "exec", "asker", "--", "wget", "-q", "-T", "2", "-O", "-",
			"http://"+net.JoinHostPort(address, "80")+path)
	}
	outside := func(address, port string) bool {
		out, err := try(t, "", "cluster", "exec", "--name", name, "--", "bash", "-c",
			"exec 3<>/dev/tcp/"+address+"/"+port+" && printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 2 cat <&3")
		return err == nil && strings.Contains(out, "nginx-deployment-")
	}
	list := func(path string, args ...string) []string {
		t.Helper()
		got := strings.Fields(k(append(append([]string{"get"}, args...), "-o", "jsonpath="+path)...))
		if len(got) < families {
			t.Fatalf("%v %s: %v, want %d", args, path, got, families)
		}
		return got
	}

	service := list("{.spec.clusterIPs[*]}", "service", "nginx-deployment")
	for _, a := range append(service, list("{.items[*].status.podIPs[*].ip}", "pods", "-l", "app=nginx")...) {
		eventually(t, a+" answers a pod", func() bool {
			out, err := ask(a, "/hostname")
			return err == nil && strings.Contains(out, "nginx-deployment-")
		})
	}
	eventually(t, "an address for each family", func() bool {
		return len(strings.Fields(k("get", "service", "nginx-deployment", "-o",
			"jsonpath={.status.loadBalancer.ingress[*].ip}"))) == families
	})
	for _, a := range list("{.status.loadBalancer.ingress[*].ip}", "service", "nginx-deployment") {
		eventually(t, a+" answers outside", func() bool { return outside(a, "80") })
	}
	for _, a := range list(`{.items[*].status.addresses[?(@.type=="InternalIP")].address}`, "nodes") {
		eventually(t, "host port at "+a, func() bool { return outside(a, "8099") })
	}
	names := k("exec", "asker", "--", "nslookup", "nginx-deployment.default.svc.cluster.local")
	for _, a := range service {
		if !strings.Contains(names, "Address: "+a) {
			t.Errorf("DNS does not return %s:\n%s", a, names)
		}
	}

	c.create(t, policyManifest)
	for _, a := range service {
		eventually(t, "the policy keeps the pod from "+a, func() bool { _, err := ask(a, "/hostname"); return err != nil })
	}
	k("label", "pod", "asker", "access=yes")
	for _, a := range service {
		eventually(t, "the policy lets the pod to "+a, func() bool { _, err := ask(a, "/hostname"); return err == nil })
	}
}

// ptpNetwork is a CNI configuration without a bridge: each pod has a link of its own to the node.
const ptpNetwork = `{
  "cniVersion": "1.0.0",
  "name": "another",
  "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
`

// TestExternalNetwork checks that a cluster works with a pod network that the operator has
// installed, and that Keelson adds nothing to that network.
func TestExternalNetwork(t *testing.T) {
	c := newCluster(t, "external", "--nodes", "1", "--network-plugin", "external")
	eventually(t, "the node waits for a network", func() bool {
		out, err := try(t, "", "--kubeconfig", c.kubeconfig, "get", "node", "n1", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && out == "False"
	})
	if out, err := try(t, ptpNetwork, "cluster", "exec", "n1", "--name", c.name, "--", "tee",
		"/etc/cni/net.d/50-another.conflist"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.create(t, strings.Replace(familiesManifest, "NODES", "1", 1))
	c.ctl(t, "rollout", "status", "deployment", "nginx-deployment")
	c.ctl(t, "rollout", "status", "-n", "kube-system", "deployment", "coredns")
	c.ctl(t, "wait", "--for=condition=Ready", "pod/asker")
	eventually(t, "the service answers by its name", func() bool {
		_, err := try(t, "", "--kubeconfig", c.kubeconfig, "exec", "asker", "--", "wget", "-q", "-T", "2", "-O",
			"-", "http://nginx-deployment/hostname")
		return err == nil
	})
	if out := ctl(t, "cluster", "exec", "n1", "--name", c.name, "--", "ls", "/sys/class/net"); strings.Contains(
		out, "cni0") {
		t.Errorf("links of the node:\n%s", out)
	}
	if out := ctl(t, "cluster", "exec", "n1", "--name", c.name, "--", "ls",
		"/etc/cni/net.d"); out != "50-another.conflist\n" {
		t.Errorf("configurations of the node:\n%s", out)
	}
}
