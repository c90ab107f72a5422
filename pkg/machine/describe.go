// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/provision"
)

// Paths of files and directories on a machine.
const (
	releases   = "/usr/lib/keelson"
	current    = releases + "/current"
	ownConfig  = "/etc/keelson"
	configFile = ownConfig + "/config.yaml"
	state      = "/var/lib/keelson"
	serverList = state + "/servers.json"
	formerList = state + "/former-servers.json"
	epochFile  = epoch.File(state + "/epoch")
	unitsDir   = "/etc/systemd/system"

	controlDir = provision.Dir("/etc/kubernetes")
	auditLog   = "/var/log/kubernetes/audit.log"
	storeDir   = "/var/lib/etcd"
	// storeData is the directory below storeDir with the data of etcd. etcd has chosen the name.
	storeData = "member"
	// storePrefix is the prefix of all keys in the store, which is the API server's default.
	storePrefix = "registry"
)

// dnsIndex is the position of the DNS Service's address in the range of Services, as in kubeadm.
const dnsIndex = 10

// local is the URL of the API at the load balancer of a machine's agent.
var local = fmt.Sprintf("https://127.0.0.1:%d", config.AgentPort)

// cluster returns the description of the cluster that c, a valid configuration, describes.
func cluster(c *config.KeelsonConfiguration) (*provision.Cluster, error) {
	out := &provision.Cluster{
		Name: c.ClusterName, Domain: c.Network.DNSDomain, NodeRanges: strings.Join(c.Network.NodeCIDRs, ","),
		LoadBalancers: strings.Join(c.Network.LoadBalancerAddresses, ","), NetworkPlugin: c.Network.Plugin,
		EmulatedVersion: c.EmulatedVersion, Ingress: c.Ingress, ForwardDNS: hasNameServer(resolverConfig()),
		Machines: true, Life: provision.Lifetimes{
			Leaf: lifetime(c.CertificateValidityPeriod), Authority: lifetime(c.CACertificateValidityPeriod),
		},
	}
	for i, text := range c.Network.PodCIDRs {
		pods, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("range of pods: %w", err)
		}
		services, err := netip.ParsePrefix(c.Network.ServiceCIDRs[i])
		if err != nil {
			return nil, fmt.Errorf("range of Services: %w", err)
		}
		dns := services.Masked().Addr()
		for range dnsIndex {
			dns = dns.Next()
		}
		out.Families = append(out.Families, provision.Family{Pods: pods, Services: services, DNS: dns})
	}
	return out, nil
}

// readConfiguration returns the configuration of this machine.
func readConfiguration() (*config.KeelsonConfiguration, error) {
	data, err := os.ReadFile(configFile)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := config.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	return c, nil
}

// lifetime returns the lifetime of certificates in a valid configuration, or 0 for the default.
func lifetime(text string) time.Duration {
	d, _ := time.ParseDuration(text) // without a value, it is 0
	return d
}

// controlPlane returns the description of the control plane of this machine.
func controlPlane(c *config.KeelsonConfiguration, of *provision.Cluster) *provision.ControlPlane {
	p := &provision.ControlPlane{
		Cluster: of, Dir: controlDir, AuditLog: auditLog, Store: storeDir,
		Bind: of.Families[0].Unspecified().String(), Advertise: c.APIServer.AdvertiseAddress, Port: c.APIServer.Port,
		Local: "127.0.0.1",
		Hosts: provision.Hosts{
			APIServer: slices.Concat([]string{c.Node.Name}, c.Node.Addresses, c.APIServer.CertSANs),
		},
		Server: "https://" + apiAddress(c), AdminServer: local,
	}
	if exists(argsFile(etcd)) {
		useEtcd(p, c)
	}
	return p
}

// apiAddress returns the HOST:PORT of this machine's API server.
func apiAddress(c *config.KeelsonConfiguration) string {
	return net.JoinHostPort(c.APIServer.AdvertiseAddress, strconv.Itoa(c.APIServer.Port))
}

// node returns the description of this machine as a node. joins is true if its kubelet gets its
// first certificate with a join token.
func node(c *config.KeelsonConfiguration, of *provision.Cluster, joins bool) *provision.Node {
	return &provision.Node{
		Cluster: of, Name: c.Node.Name, Addresses: c.Node.Addresses, Tools: filepath.Join(current, "tools"),
		Runtime: c.Runtime, Server: local, Joins: joins, OverrideHostname: true,
		Kubelet: func(k *kubeletconfig.KubeletConfiguration) {
			k.ResolverConfig = new(resolverConfig())
			k.MaxPods = int32(c.Kubelet.MaxPods)
			k.EvictionHard = c.Kubelet.EvictionHard
		},
	}
}

// resolverConfig returns the file with the machine's name servers. If systemd-resolved runs,
// /etc/resolv.conf has only its address on the machine's loopback interface, which pods cannot reach.
func resolverConfig() string {
	const resolved = "/run/systemd/resolve/resolv.conf"
	if _, err := os.Stat(resolved); err == nil {
		return resolved
	}
	return "/etc/resolv.conf"
}

// hasNameServer reports whether the file in the format of resolv.conf has a name server. A cluster
// without one answers that other names do not exist, instead of forwarding them.
func hasNameServer(file string) bool {
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return true
		}
	}
	return false
}

// kubeletArgs returns the kubelet's flags.
func kubeletArgs(c *config.KeelsonConfiguration, n *provision.Node) []string {
	out := n.KubeletArgs()
	if len(c.Node.Labels) > 0 {
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(c.Node.Labels)) {
			labels = append(labels, k+"="+c.Node.Labels[k])
		}
		out = append(out, "--node-labels="+strings.Join(labels, ","))
	}
	if len(c.Node.Taints) > 0 {
		out = append(out, "--register-with-taints="+strings.Join(c.Node.Taints, ","))
	}
	return out
}

// agentArgs returns the agent's flags.
func agentArgs(c *config.KeelsonConfiguration) []string {
	return []string{"agent", "--node=" + c.Node.Name}
}
