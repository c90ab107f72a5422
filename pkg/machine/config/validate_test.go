// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*KeelsonConfiguration)
		want   []string // one for each fault; a part of its text
	}{
		"defaults":     {change: func(*KeelsonConfiguration) {}},
		"cluster name": {func(c *KeelsonConfiguration) { c.ClusterName = "My cluster" }, []string{"clusterName: Invalid"}},
		"node name":    {func(c *KeelsonConfiguration) { c.Node.Name = "a_b" }, []string{"node.name: Invalid"}},
		"no node name": {func(c *KeelsonConfiguration) { c.Node.Name = "" }, []string{"node.name: Required"}},
		"long node name": {func(c *KeelsonConfiguration) { c.Node.Name = strings.Repeat("a", 64) },
			[]string{"node.name: Too long"}},
		"localhost": {func(c *KeelsonConfiguration) { c.Node.Name = "localhost" }, []string{"no node can have this name"}},
		"name of a Service": {func(c *KeelsonConfiguration) { c.Node.Name = "a.default.svc" },
			[]string{"it is the name of a service"}},
		"labels": {change: func(c *KeelsonConfiguration) {
			c.Node.Labels = map[string]string{"a": "b", "node.kubernetes.io/a": "", "topology.kubernetes.io/zone": "z"}
		}},
		"bad label": {func(c *KeelsonConfiguration) { c.Node.Labels = map[string]string{"a b": "c"} },
			[]string{"node.labels[a b]: Invalid"}},
		"restricted label": {func(c *KeelsonConfiguration) {
			c.Node.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
		}, []string{"node.labels[node-role.kubernetes.io/worker]: Forbidden"}},
		"taints": {change: func(c *KeelsonConfiguration) {
			c.Node.Taints = []string{"a=b:NoSchedule", "example.com/a:NoExecute"}
		}},
		"taint without effect": {func(c *KeelsonConfiguration) { c.Node.Taints = []string{"a=b"} },
			[]string{"node.taints[0]: Invalid"}},
		"taint with a bad value": {func(c *KeelsonConfiguration) { c.Node.Taints = []string{"a=b=c:NoSchedule"} },
			[]string{"node.taints[0]: Invalid"}},

		"dual stack": {change: dual},
		"no address": {func(c *KeelsonConfiguration) { c.Node.Addresses, c.APIServer.AdvertiseAddress = nil, "" },
			[]string{"node.addresses: Required", "apiServer.advertiseAddress: Required"}},
		"loopback address": {func(c *KeelsonConfiguration) { c.Node.Addresses = []string{"127.0.0.1"} },
			[]string{"node.addresses[0]: Invalid"}},
		"address with zone": {func(c *KeelsonConfiguration) { c.Node.Addresses = []string{"fe80::1%eth0"} },
			[]string{"node.addresses[0]: Invalid"}},
		"two addresses of a family": {func(c *KeelsonConfiguration) { c.Node.Addresses = []string{"10.0.0.1", "10.0.0.2"} },
			[]string{"must have the same IP families"}},
		"address of another family": {func(c *KeelsonConfiguration) { c.Node.Addresses = []string{"fd07::11"} },
			[]string{"must have the same IP families"}},
		"address outside of nodes": {func(c *KeelsonConfiguration) { c.Network.NodeCIDRs = []string{"10.9.0.0/16"} },
			[]string{"node.addresses[0]: Invalid"}},
		"advertised address outside of nodes": {func(c *KeelsonConfiguration) {
			c.Network.NodeCIDRs, c.APIServer.AdvertiseAddress = []string{"192.168.7.0/24"}, "10.0.0.1"
		}, []string{"apiServer.advertiseAddress: Invalid"}},
		"address inside of nodes": {change: func(c *KeelsonConfiguration) {
			c.Network.NodeCIDRs = []string{"192.168.7.0/24"}
		}},

		"no range": {func(c *KeelsonConfiguration) { c.Network.PodCIDRs = []string{} },
			[]string{"network.podCIDRs: Required"}},
		"three ranges": {func(c *KeelsonConfiguration) {
			c.Network.ServiceCIDRs = []string{"10.1.0.0/16", "fd01::/112", "10.2.0.0/16"}
		}, []string{"network.serviceCIDRs: Too many"}},
		"ranges of one family": {func(c *KeelsonConfiguration) {
			c.Network.ServiceCIDRs = []string{"10.1.0.0/16", "10.2.0.0/16"}
		}, []string{"must have different IP families"}},
		"other families": {func(c *KeelsonConfiguration) { c.Network.ServiceCIDRs = []string{"fd01::/112"} },
			[]string{"network.serviceCIDRs: Invalid"}},
		"other order": {func(c *KeelsonConfiguration) {
			dual(c)
			c.Network.ServiceCIDRs = []string{"fd96::/112", "10.96.0.0/16"}
		}, []string{"in the same order"}},
		"no range at all": {func(c *KeelsonConfiguration) { c.Network.ServiceCIDRs = []string{"10.1.0.0"} },
			[]string{"network.serviceCIDRs[0]: Invalid"}},
		"bits of an address": {func(c *KeelsonConfiguration) { c.Network.ServiceCIDRs = []string{"10.1.0.1/16"} },
			[]string{"the range is 10.1.0.0/16"}},
		"small range of Services": {func(c *KeelsonConfiguration) { c.Network.ServiceCIDRs = []string{"10.1.0.0/29"} },
			[]string{"from 8 to 28 bits"}},
		"small range of pods": {func(c *KeelsonConfiguration) { c.Network.PodCIDRs = []string{"10.1.0.0/25"} },
			[]string{"from 8 to 24 bits"}},
		"special range": {func(c *KeelsonConfiguration) { c.Network.PodCIDRs = []string{"127.0.0.0/16"} },
			[]string{"which has a special meaning"}},
		"range of carriers": {change: func(c *KeelsonConfiguration) { c.Network.PodCIDRs = []string{"100.64.0.0/10"} }},

		"pods and Services": {func(c *KeelsonConfiguration) { c.Network.ServiceCIDRs = []string{"10.244.16.0/20"} },
			[]string{"overlaps network.podCIDRs[0]: pods 10.244.0.0-10.244.255.255"}},
		"pods and nodes": {func(c *KeelsonConfiguration) {
			c.Network.NodeCIDRs = []string{"10.244.1.0/24", "192.168.0.0/16"}
		},
			[]string{"network.nodeCIDRs[0]: Invalid"}},
		"pods and the machine": {func(c *KeelsonConfiguration) { c.Network.PodCIDRs = []string{"192.168.0.0/16"} },
			[]string{"overlaps node.addresses[0]: this machine 192.168.7.11"}},
		"load balancers": {change: func(c *KeelsonConfiguration) {
			c.Network.NodeCIDRs = []string{"192.168.7.0/24"}
			c.Network.LoadBalancerAddresses = []string{"192.168.7.200-192.168.7.220", "192.168.7.240/28", "192.168.7.5",
				"fd07::/120"}
		}},
		"load balancers and the machine": {func(c *KeelsonConfiguration) {
			c.Network.LoadBalancerAddresses = []string{"192.168.7.10-192.168.7.20"}
		}, []string{"network.loadBalancerAddresses[0]: Invalid"}},
		"load balancers and Services": {func(c *KeelsonConfiguration) {
			c.Network.LoadBalancerAddresses = []string{"10.96.0.0/24"}
		}, []string{"overlaps network.serviceCIDRs[0]"}},
		"bad load balancers": {func(c *KeelsonConfiguration) {
			c.Network.LoadBalancerAddresses = []string{"10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1", "a"}
		}, []string{"[0]: Invalid", "[1]: Invalid", "[2]: Invalid"}},
		"DNS domain": {func(c *KeelsonConfiguration) { c.Network.DNSDomain = "cluster local" },
			[]string{"network.dnsDomain: Invalid"}},
		"plugin": {func(c *KeelsonConfiguration) { c.Network.Plugin = "cilium" },
			[]string{`supported values: "keelson", "external"`}},

		"port of the kubelet": {func(c *KeelsonConfiguration) { c.APIServer.Port = KubeletPort },
			[]string{"another program of Keelson has this port"}},
		"port of a Service": {func(c *KeelsonConfiguration) { c.APIServer.Port = 30443 }, []string{"NodePort"}},
		"no port": {func(c *KeelsonConfiguration) { c.APIServer.Port = 65536 },
			[]string{"apiServer.port: Invalid"}},
		"names of certificates": {change: func(c *KeelsonConfiguration) {
			c.APIServer.CertSANs = []string{"api.example.com", "*.example.com", "10.0.0.1", "fd00::1"}
		}},
		"bad names of certificates": {func(c *KeelsonConfiguration) { c.APIServer.CertSANs = []string{"a_b", ""} },
			[]string{"apiServer.certSANs[0]: Invalid", "apiServer.certSANs[1]: Required"}},
		"runtime": {func(c *KeelsonConfiguration) { c.Runtime = "docker" }, []string{"runtime: Unsupported"}},
		"emulated version": {func(c *KeelsonConfiguration) { c.EmulatedVersion = "1.20" },
			[]string{"emulatedVersion: Unsupported"}},
		"lifetimes": {change: func(c *KeelsonConfiguration) {
			c.CertificateValidityPeriod, c.CACertificateValidityPeriod = "1m", "8760h"
		}},
		"bad lifetimes": {func(c *KeelsonConfiguration) {
			c.CertificateValidityPeriod, c.CACertificateValidityPeriod = "59s", "1y"
		}, []string{"certificateValidityPeriod: Invalid", "caCertificateValidityPeriod: Invalid"}},
		"no pods":   {func(c *KeelsonConfiguration) { c.Kubelet.MaxPods = -1 }, []string{"kubelet.maxPods: Invalid"}},
		"many pods": {func(c *KeelsonConfiguration) { c.Kubelet.MaxPods = 254 }, []string{"at most 253"}},
		"many pods of another network": {change: func(c *KeelsonConfiguration) {
			c.Kubelet.MaxPods, c.Network.Plugin = 500, PluginExternal
		}},
		"signal": {func(c *KeelsonConfiguration) { c.Kubelet.EvictionHard = map[string]string{"disk": "5%"} },
			[]string{"kubelet.evictionHard[disk]: Unsupported"}},
		"thresholds": {func(c *KeelsonConfiguration) {
			c.Kubelet.EvictionHard = map[string]string{"memory.available": "101%", "nodefs.available": "much"}
		}, []string{"kubelet.evictionHard[memory.available]: Invalid", "kubelet.evictionHard[nodefs.available]: Invalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &KeelsonConfiguration{}
			Default(cfg, facts())
			c.change(cfg)
			var have []string
			for _, fault := range Validate(cfg) {
				have = append(have, fault.Error())
			}
			if len(have) != len(c.want) {
				t.Fatalf("faults %q, want %q", have, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(have[i], want) {
					t.Errorf("fault %q, want %q", have[i], want)
				}
			}
		})
	}
}

func dual(c *KeelsonConfiguration) {
	c.Node.Addresses = []string{"192.168.7.11", "fd07::11"}
	c.Network.PodCIDRs = []string{"10.244.0.0/16", "fd44::/48"}
	c.Network.ServiceCIDRs = []string{"10.96.0.0/16", "fd96::/112"}
}

// TestAllFaultsAreReported checks that one error has all faults.
func TestAllFaultsAreReported(t *testing.T) {
	_, err := load(t, "runtime: a\nclusterName: B\n", "--network-plugin=c")
	for _, want := range []string{"runtime", "clusterName", "network.plugin"} {
		if err == nil || !strings.Contains(err.Error(), want+": ") {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
