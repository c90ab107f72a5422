// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// TestNodeArgs checks the flags of a node's programs that depend on its description.
func TestNodeArgs(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(*Node)
		want, not      []string
		proxy, without string
	}{
		"first machine": {
			want: []string{
				"--config=/var/lib/kubelet/config.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf",
				"--node-ip=10.60.0.11,fd60::11", "--pod-network-cidrs=10.20.0.0/16,fd20::/48",
			},
			not:   []string{"--bootstrap-kubeconfig", "--network-plugin", "--hostname-override"},
			proxy: "--network-policy=true",
		},
		"joining machine": {
			change: func(n *Node) { n.Joins, n.OverrideHostname = true, true },
			want:   []string{"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--hostname-override=m1"},
			proxy:  "--hostname-override=m1",
		},
		"other pod network": {
			change: func(n *Node) { n.Cluster.NetworkPlugin = ExternalNetwork },
			want:   []string{"--network-plugin=external"}, not: []string{"--pod-network-cidrs"},
			proxy: "--network-policy=false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, n := machine("/root/of/the/node") // programs see paths inside the node
			if tc.change != nil {
				tc.change(n)
			}
			checkArgs(t, n.KubeletArgs(), tc.want, tc.not)
			checkArgs(t, n.ProxyArgs(), []string{tc.proxy, "--config=/var/lib/kube-proxy/config.conf"}, nil)
		})
	}
}

// readYAML decodes a file of a node strictly.
func readYAML[T any](t *testing.T, n *Node, path string) *T {
	t.Helper()
	data, err := os.ReadFile(n.path(path))
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := yaml.UnmarshalStrict(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNodeFiles checks the configuration of a machine's programs.
func TestNodeFiles(t *testing.T) {
	_, n := machine(t.TempDir())
	makeTools(t, n, Crun, Runc)
	if err := n.WriteFiles(); err != nil {
		t.Fatal(err)
	}
	k := readYAML[kubeletconfig.KubeletConfiguration](t, n, kubeletYAML)
	if k.CgroupRoot != "/" || k.EvictionHard != nil || k.ImageGCHighThresholdPercent != nil || k.MaxPods != 0 {
		t.Errorf("cgroup root %q, evictions %v, image collection %v, pods %d", k.CgroupRoot, k.EvictionHard,
			k.ImageGCHighThresholdPercent, k.MaxPods)
	}
	if k.ShutdownGracePeriod.Duration != 20*time.Second || k.ShutdownGracePeriodCriticalPods.Duration != 5*time.Second {
		t.Errorf("shutdown in %v and %v", k.ShutdownGracePeriod, k.ShutdownGracePeriodCriticalPods)
	}
	if k.ClusterDomain != "example.internal" || strings.Join(k.ClusterDNS, " ") != "10.60.0.11 10.30.0.10" ||
		k.Address != "0.0.0.0" || k.Authentication.X509.ClientCAFile != "/etc/kubernetes/pki/ca.crt" {
		t.Errorf("domain %q, DNS %q, address %q, authority %q", k.ClusterDomain, k.ClusterDNS, k.Address,
			k.Authentication.X509.ClientCAFile)
	}
	p := readYAML[proxyconfig.KubeProxyConfiguration](t, n, proxyYAML)
	if p.ClusterCIDR != "10.20.0.0/16,fd20::/48" || p.HostnameOverride != "m1" ||
		p.MetricsBindAddress != "127.0.0.1:10249" {
		t.Errorf("ranges %q, name %q, metrics at %q", p.ClusterCIDR, p.HostnameOverride, p.MetricsBindAddress)
	}
	runtime, err := os.ReadFile(n.path(containerdTOML))
	if err != nil || !strings.Contains(string(runtime), `"/usr/lib/keelson/current/tools/runc"`) ||
		!strings.Contains(string(runtime), `root = "/var/lib/containerd"`) {
		t.Errorf("%v in\n%s", err, runtime)
	}
	link, err := os.Readlink(n.path("/opt/cni/bin/portmap"))
	if err != nil || link != "/usr/lib/keelson/current/tools/cni/portmap" {
		t.Errorf("link to %q, %v", link, err)
	}
}

// TestNodeFilesOfIPv6 checks at which addresses the programs of a node without IPv4 listen.
func TestNodeFilesOfIPv6(t *testing.T) {
	_, n := machine(t.TempDir())
	n.Cluster.Families, n.Addresses = n.Cluster.Families[1:], n.Addresses[1:]
	makeTools(t, n)
	if err := n.WriteFiles(); err != nil {
		t.Fatal(err)
	}
	k := readYAML[kubeletconfig.KubeletConfiguration](t, n, kubeletYAML)
	p := readYAML[proxyconfig.KubeProxyConfiguration](t, n, proxyYAML)
	if k.Address != "::" || p.BindAddress != "::" || p.MetricsBindAddress != "[::1]:10249" {
		t.Errorf("kubelet at %q, proxy at %q and %q", k.Address, p.BindAddress, p.MetricsBindAddress)
	}
}

// TestNodeFilesAgain checks that files and links that exist already are kept, that their modes are
// corrected, and that the caller can change the kubelet's configuration.
func TestNodeFilesAgain(t *testing.T) {
	_, n := machine(t.TempDir())
	makeTools(t, n)
	own := n.path(networkPlugins, "portmap")
	if err := WriteFiles(n.Root, []File{
		{Path: proxyYAML, Data: []byte("mine"), Mode: 0o644},
		{Path: filepath.Join(networkPlugins, "portmap"), Data: []byte("mine"), Mode: 0o755},
	}); err != nil {
		t.Fatal(err)
	}
	n.Kubelet = func(k *kubeletconfig.KubeletConfiguration) { k.MaxPods = 7 }
	for range 2 {
		if err := n.WriteFiles(); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{n.path(proxyYAML), own} {
		if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	if info, err := os.Stat(n.path(proxyYAML)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if k := readYAML[kubeletconfig.KubeletConfiguration](t, n, kubeletYAML); k.MaxPods != 7 || k.CgroupRoot != "/" {
		t.Errorf("%d pods, cgroup root %q", k.MaxPods, k.CgroupRoot)
	}
}
