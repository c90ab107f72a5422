// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/apiserver/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// exampleCluster returns a cluster whose names and addresses differ from those of "ctl cluster".
func exampleCluster() *Cluster {
	return &Cluster{Name: "prod", Domain: "example.internal", Families: []Family{
		{Pods: netip.MustParsePrefix("10.20.0.0/16"), Services: netip.MustParsePrefix("10.30.0.0/20"),
			DNS: netip.MustParseAddr("10.30.0.10")},
		{Pods: netip.MustParsePrefix("fd20::/48"), Services: netip.MustParsePrefix("fd30::/112"),
			DNS: netip.MustParseAddr("fd30::a")},
	}}
}

// machine returns the descriptions of a control plane and a node on one machine, whose files are
// below root.
func machine(root string) (*ControlPlane, *Node) {
	p := &ControlPlane{
		Cluster: exampleCluster(), Dir: Dir(filepath.Join(root, "/etc/kubernetes")),
		AuditLog: filepath.Join(root, "/var/log/keelson/audit.log"), Store: filepath.Join(root, "/var/lib/etcd"),
		Bind: "::", Advertise: "10.60.0.11", Port: 6443, Local: "127.0.0.1",
		Hosts:  Hosts{APIServer: []string{"m1"}},
		Server: "https://10.60.0.11:6443", AdminServer: "https://127.0.0.1:7443",
	}
	n := &Node{
		Cluster: exampleCluster(), Name: "m1", Addresses: []string{"10.60.0.11", "fd60::11"}, Root: root,
		Tools: "/usr/lib/keelson/current/tools", Server: "https://127.0.0.1:7443",
	}
	return p, n
}

// makeTools creates the directory of containerd's tools.
func makeTools(t *testing.T, n *Node, runtimes ...string) {
	t.Helper()
	n.ToolsSource = t.TempDir()
	for _, name := range append(runtimes, "cni/portmap") {
		file := filepath.Join(n.ToolsSource, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// checkArgs checks that flags contain all of want, and none that begins with a prefix in not.
func checkArgs(t *testing.T, args, want, not []string) {
	t.Helper()
	all := "\n" + strings.Join(args, "\n") + "\n"
	for _, flag := range want {
		if !strings.Contains(all, "\n"+flag+"\n") {
			t.Errorf("no flag %s in%s", flag, all)
		}
	}
	for _, prefix := range not {
		if strings.Contains(all, "\n"+prefix) {
			t.Errorf("a flag %s in%s", prefix, all)
		}
	}
}
