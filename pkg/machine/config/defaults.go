// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are the properties of a machine from which defaults are derived.
type Facts struct {
	HostName string
	// Addresses are the addresses of the interfaces with the default routes, the preferred one first.
	Addresses []netip.Addr
}

// The default ranges of each IP family.
const (
	defaultPods4     = "10.244.0.0/16"
	defaultPods6     = "fd44::/48"
	defaultServices4 = "10.96.0.0/16"
	defaultServices6 = "fd96::/112"
)

// constants returns the defaults that do not depend on other values.
func constants() *KeelsonConfiguration {
	return &KeelsonConfiguration{
		TypeMeta:    metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		ClusterName: "keelson",
		Network:     Network{DNSDomain: "cluster.local", Plugin: PluginKeelson},
		APIServer:   APIServer{Port: 6443},
		Kubelet: Kubelet{MaxPods: 110, EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}},
		Runtime: RuntimeCrun,
	}
}

// Default sets the fields of c that have no value.
func Default(c *KeelsonConfiguration, m Facts) {
	standard := constants()
	c.TypeMeta = standard.TypeMeta
	for _, f := range Fields() {
		if f.value != nil && f.of(c).IsZero() {
			f.of(c).Set(f.of(standard))
		}
	}
	if c.Node.Name == "" {
		c.Node.Name = strings.ToLower(m.HostName)
	}
	families := families(c, m)
	if c.Network.PodCIDRs == nil {
		c.Network.PodCIDRs = ofFamilies(families, defaultPods4, defaultPods6)
	}
	if c.Network.ServiceCIDRs == nil {
		c.Network.ServiceCIDRs = ofFamilies(families, defaultServices4, defaultServices6)
	}
	if c.Node.Addresses == nil {
		for _, is6 := range families {
			for _, a := range m.Addresses {
				if a.Is6() == is6 {
					c.Node.Addresses = append(c.Node.Addresses, a.String())
					break
				}
			}
		}
	}
	if c.APIServer.AdvertiseAddress == "" && len(c.Node.Addresses) > 0 {
		c.APIServer.AdvertiseAddress = c.Node.Addresses[0]
	}
}

// families returns the IP families of the cluster, the primary one first. An element is true for IPv6.
// They follow from the first of these fields that has a value: the ranges of Services, the ranges of
// pods, the node's addresses. Otherwise the cluster has only IPv4, unless the machine has only IPv6.
func families(c *KeelsonConfiguration, m Facts) []bool {
	for _, values := range [][]string{c.Network.ServiceCIDRs, c.Network.PodCIDRs, c.Node.Addresses} {
		var out []bool
		for _, text := range values {
			address, _, _ := strings.Cut(text, "/")
			if a, err := netip.ParseAddr(address); err == nil { // Validate reports the error
				out = append(out, a.Is6())
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	for _, a := range m.Addresses {
		if a.Is4() {
			return []bool{false}
		}
	}
	return []bool{len(m.Addresses) > 0}
}

func ofFamilies(families []bool, v4, v6 string) []string {
	var out []string
	for _, is6 := range families {
		if is6 {
			out = append(out, v6)
		} else {
			out = append(out, v4)
		}
	}
	return out
}
