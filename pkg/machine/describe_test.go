// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/provision"
)

// example returns the configuration of a machine with both IP families.
func example() *config.KeelsonConfiguration {
	c := &config.KeelsonConfiguration{}
	c.Network.PodCIDRs = []string{"10.20.0.0/16", "fd20::/48"}
	c.Network.ServiceCIDRs = []string{"10.30.0.0/20", "fd30::/112"}
	c.Network.NodeCIDRs = []string{"192.0.2.0/24", "2001:db8::/64"}
	c.Node.Labels = map[string]string{"zone": "b", "disk": "ssd"}
	c.Node.Taints = []string{"dedicated=db:NoSchedule"}
	config.Default(c, config.Facts{HostName: "m1", Addresses: []netip.Addr{
		netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")}})
	return c
}

func TestCluster(t *testing.T) {
	c := example()
	if faults := config.Validate(c); len(faults) > 0 {
		t.Fatal(faults)
	}
	of, err := cluster(c)
	if err != nil {
		t.Fatal(err)
	}
	var dns []string
	for _, f := range of.Families {
		dns = append(dns, f.DNS.String())
	}
	if !slices.Equal(dns, []string{"10.30.0.10", "fd30::a"}) || of.NodeRanges != "192.0.2.0/24,2001:db8::/64" ||
		!of.Machines {
		t.Errorf("DNS %v, cluster %+v", dns, of)
	}
}

// TestArgs checks the flags that depend on the configuration of the machine.
func TestArgs(t *testing.T) {
	c := example()
	of, err := cluster(c)
	if err != nil {
		t.Fatal(err)
	}
	p, n := controlPlane(c, of), node(c, of, false)
	for program, tc := range map[string]struct{ args, want []string }{
		"API server": {p.APIServerArgs(), []string{"--bind-address=0.0.0.0", "--advertise-address=192.0.2.11",
			"--secure-port=6443", "--data-dir=/var/lib/etcd", "--node-address-ranges=192.0.2.0/24,2001:db8::/64"}},
		"controller manager": {p.ControllerManagerArgs(), []string{"--approve-proxy-clients=true",
			"--bind-address=127.0.0.1"}},
		"kubelet": {kubeletArgs(c, n), []string{"--node-ip=192.0.2.11,2001:db8::11", "--hostname-override=m1",
			"--node-labels=disk=ssd,zone=b", "--register-with-taints=dedicated=db:NoSchedule"}},
		"joining kubelet": {kubeletArgs(c, node(c, of, true)),
			[]string{"--bootstrap-kubeconfig=" + provision.BootstrapKubeconfig}},
		"agent": {agentArgs(c), []string{"agent", "--node=m1"}},
	} {
		for _, flag := range tc.want {
			if !slices.Contains(tc.args, flag) {
				t.Errorf("%s: no flag %s in\n%s", program, flag, strings.Join(tc.args, "\n"))
			}
		}
	}
	for _, a := range p.Deny {
		if slices.Contains(c.Node.Addresses, a.String()) {
			t.Errorf("the API server may not connect to the kubelet of its own machine at %s", a)
		}
	}
}

func TestHasNameServer(t *testing.T) {
	for content, want := range map[string]bool{
		"nameserver 192.0.2.53\n":                  true,
		"search a b\nnameserver\t2001:db8::53":     true,
		"# nameserver 192.0.2.53\noptions ndots:1": false,
		"nameserver\n":                             false,
		"":                                         false,
	} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := hasNameServer(file); got != want {
			t.Errorf("%q: %t", content, got)
		}
	}
	if hasNameServer(filepath.Join(t.TempDir(), "none")) {
		t.Error("a file that does not exist has a name server")
	}
}

// TestArgsWithoutSpaces checks that flags that systemd would split are refused.
func TestArgsWithoutSpaces(t *testing.T) {
	for _, arg := range []string{"--a=b c", "--a=$HOME", `--a="b"`, `--a=b\`, "--a=b\n"} {
		if content, err := argsContent("kubelet", []string{"--ok", arg}); err == nil {
			t.Errorf("%q: %q", arg, content)
		}
	}
	content, err := argsContent("kubelet", []string{"--a=b", "--c=d<1%,e=f:g"})
	if want := "ARGS=\"--a=b --c=d<1%,e=f:g\"\n"; err != nil || string(content) != want {
		t.Errorf("%q, %v, want %q", content, err, want)
	}
}
