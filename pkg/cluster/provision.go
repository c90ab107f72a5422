// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/provision"
)

// This file describes a cluster in namespaces to the package provision, which derives certificates,
// files and flags from the description.

// shared returns the description of what all processes of the cluster have in common.
func (c *Config) shared() *provision.Cluster {
	out := &provision.Cluster{
		Name: c.Name, Domain: clusterDomain, NodeRanges: c.IPFamily.nodeRanges(),
		LoadBalancers: cmp.Or(c.LoadBalancers, c.IPFamily.LoadBalancers()),
		NetworkPlugin: c.NetworkPlugin, EmulatedVersion: c.EmulatedVersion, Ingress: c.Ingress,
	}
	for _, r := range c.IPFamily.ranges() {
		out.Families = append(out.Families, r.Family)
	}
	return out
}

// controlPlane returns the description of a control plane. All control planes of a cluster use the
// same certificates.
func (c *Config) controlPlane(r replica) *provision.ControlPlane {
	d := c.dirs()
	out := &provision.ControlPlane{
		Cluster: c.shared(), Dir: d.control(), AuditLog: d.auditLog(r.suffix), Store: d.store(),
		Bind: r.bind, Advertise: r.advertise, Port: controlPort, Local: r.local,
		Deny: c.controlAddresses(), LeaderElect: c.replicated(),
		Server: c.clusterServer(), AdminServer: machineServer(c.Port),
	}
	for _, a := range out.Deny {
		out.Hosts.APIServer = append(out.Hosts.APIServer, a.String())
	}
	for _, each := range c.replicas() {
		out.Hosts.Managers = append(out.Hosts.Managers, each.local)
	}
	if c.replicated() {
		out.EtcdFiles = etcdFiles()
		for i := range etcdMembers {
			out.EtcdServers = append(out.EtcdServers, etcdURL(i, "2379"))
			out.Hosts.Etcd = append(out.Hosts.Etcd, above("127.0.0.1", i))
		}
	}
	return out
}

// firstPlane returns the description with which the files that all control planes share are written.
func (c *Config) firstPlane() *provision.ControlPlane { return c.controlPlane(c.replicas()[0]) }

// node returns the description of a node.
func (c *Config) node(n Node) *provision.Node {
	return &provision.Node{
		Cluster: c.shared(), Name: n.Name, Addresses: n.Addresses(), Root: c.dirs().node(n.Name).root,
		Tools: insideTools, ToolsSource: c.ToolsDir, Runtime: c.Runtime, Server: c.clusterServer(), Joins: n.Joins,
		Kubelet: func(k *kubeletconfig.KubeletConfiguration) { inNamespaces(k, cgroupOf(c.Name, n.Name)) },
	}
}

// inNamespaces sets what differs in the configuration of a kubelet that shares its machine with
// others. group is the node's cgroup.
func inNamespaces(k *kubeletconfig.KubeletConfiguration, group string) {
	k.CgroupRoot = group
	// All nodes use the machine's disk. Pods must run even if that disk is 90% full, so the limits
	// are lower than the kubelet's defaults.
	k.EvictionHard = map[string]string{
		"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
		"imagefs.available": "1%", "imagefs.inodesFree": "1%",
	}
	noCollection := int32(100)
	k.ImageGCHighThresholdPercent = &noCollection
	// A node has no systemd that could announce a shutdown.
	k.ShutdownGracePeriod, k.ShutdownGracePeriodCriticalPods = metav1.Duration{}, metav1.Duration{}
}

// machineServer is the API server's address outside the cluster.
func machineServer(port int) string {
	return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// clusterServer is the API server's address inside the cluster.
func (c *Config) clusterServer() string {
	return "https://" + netip.AddrPortFrom(c.IPFamily.primary().control, controlPort).String()
}
