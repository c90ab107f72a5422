// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// TestControlPlanesInNamespaces checks the flags that keep the API servers of a cluster away from the
// control plane's addresses, and where the processes of several control planes listen.
func TestControlPlanesInNamespaces(t *testing.T) {
	c := &Config{Name: "one", DataDir: "/data", BinDir: "/bin", ToolsDir: "/tools", IPFamily: Dual, ControlPlanes: 2}
	flags := map[string][]string{}
	for _, p := range controlProcesses(c, nil) {
		flags[p.name] = p.argv
	}
	for name, want := range map[string][]string{
		"apiserver-1": {
			"/bin/apiserver", "--bind-address=10.50.0.2", "--secure-port=6443", "--advertise-address=10.50.0.2",
			"--outbound-deny=special,10.50.0.1/32,fd50::1/128,10.50.0.2/32,10.50.0.3/32",
			"--etcd-servers=https://127.0.0.1:2379,https://127.0.0.2:2379,https://127.0.0.3:2379",
			"--etcd-cafile=/data/pki/etcd-ca.crt", "--audit-log-path=/data/audit/audit-1.log",
		},
		"apiserver-2":          {"--bind-address=10.50.0.3", "--audit-log-path=/data/audit/audit-2.log"},
		"controller-manager-2": {"/bin/controller-manager", "--bind-address=127.0.0.2", "--leader-elect=true"},
		"scheduler-2":          {"/bin/scheduler", "--bind-address=127.0.0.2", "--config=/data/scheduler.yaml"},
		"etcd-3": {
			"/tools/etcd", "--data-dir=/data/etcd-3", "--listen-peer-urls=https://127.0.0.3:2380",
			"--cert-file=/data/pki/etcd.crt", "--peer-cert-file=/data/pki/etcd.crt",
		},
	} {
		for _, flag := range want {
			if !slices.Contains(flags[name], flag) {
				t.Errorf("%s has no %s in %q", name, flag, flags[name])
			}
		}
	}
	if len(flags) != 9 {
		t.Errorf("processes %q", slices.Sorted(maps.Keys(flags)))
	}
}

// TestNodesInNamespaces checks what differs from a machine in the configuration of a node, and that
// its files are below the node's directory.
func TestNodesInNamespaces(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), ToolsDir: t.TempDir(), IPFamily: Dual}
	n := Node{Name: "n1", Index: 1, IPFamily: Dual}
	if err := errors.Join(os.Mkdir(c.ToolsDir+"/cni", 0o700), os.WriteFile(c.ToolsDir+"/cni/portmap", nil, 0o700),
		writeControlPlane(c, clock.Real()), makeNode(c, n, clock.Real())); err != nil {
		t.Fatal(err)
	}
	nd := c.dirs().node(n.Name)
	data, err := os.ReadFile(nd.path("/var/lib/kubelet/config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	k := kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		t.Fatal(err)
	}
	if k.CgroupRoot != "/keelson/one/n1" || k.EvictionHard["nodefs.available"] != "1%" ||
		*k.ImageGCHighThresholdPercent != 100 || k.ShutdownGracePeriod.Duration != 0 {
		t.Errorf("not for namespaces:\n%s", data)
	}
	if strings.Join(k.ClusterDNS, " ") != "10.50.0.11 10.96.0.10" {
		t.Errorf("name servers %q", k.ClusterDNS)
	}
	if link, err := os.Readlink(nd.path("/opt/cni/bin/portmap")); err != nil || link != insideTools+"/cni/portmap" {
		t.Errorf("plugin at %q, %v", link, err)
	}
	if hosts, err := os.ReadFile(nd.path("/etc/hosts")); err != nil || !strings.HasSuffix(string(hosts),
		"10.50.0.11 n1\nfd50::11 n1\n") {
		t.Errorf("hosts %q, %v", hosts, err)
	}
	cert, err := pki.ReadCertificate(c.dirs().control().PKI("apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"10.50.0.1", "fd50::1", "10.96.0.1", "fd96::1", "kubernetes.default.svc.cluster.local"} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}
