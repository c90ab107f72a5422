// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Field describes one field of a KeelsonConfiguration.
type Field struct {
	// Path is the name of the field in a file, such as network.podCIDRs.
	Path string
	// Flag is the name of the flag, without dashes. It is empty for a field that has only other fields.
	// Flags that the programs of Kubernetes or kubeadm have too have their names.
	Flag string
	// Help says what the field means. It begins with a small letter and ends without a full stop.
	Help string

	value     func(*KeelsonConfiguration) any // returns a pointer to the value; nil if Flag is empty
	threshold bool                            // the flag's value has the form KEY<VALUE, as the kubelet's flag has
}

// Fields returns all fields, in the order in which Print prints them.
func Fields() []Field {
	return []Field{
		{Path: "clusterName", Flag: "cluster-name",
			Help:  "name of the cluster, in kubeconfig files",
			value: func(c *KeelsonConfiguration) any { return &c.ClusterName }},
		{Path: "node", Help: "this machine as a node of the cluster"},
		{Path: "node.name", Flag: "node-name",
			Help:  "name of the node; if empty, the machine's host name in lower case",
			value: func(c *KeelsonConfiguration) any { return &c.Node.Name }},
		{Path: "node.addresses", Flag: "node-ip",
			Help: "addresses at which other machines reach this one, one for each IP family of the cluster; if empty, those " +
				"of the interface with the default route",
			value: func(c *KeelsonConfiguration) any { return &c.Node.Addresses }},
		{Path: "node.labels", Flag: "node-labels",
			Help:  "labels that the node gets when it is registered",
			value: func(c *KeelsonConfiguration) any { return &c.Node.Labels }},
		{Path: "node.taints", Flag: "register-with-taints",
			Help:  "taints that the node gets when it is registered, each as KEY=VALUE:EFFECT or KEY:EFFECT",
			value: func(c *KeelsonConfiguration) any { return &c.Node.Taints }},
		{Path: "network", Help: "address ranges and names inside the cluster; the same on all machines"},
		{Path: "network.podCIDRs", Flag: "pod-network-cidr",
			Help: "range of all pod addresses, or one for each IP family, the first family being the primary one; if empty, " +
				defaultPods4 + ", or " + defaultPods6 + " for IPv6",
			value: func(c *KeelsonConfiguration) any { return &c.Network.PodCIDRs }},
		{Path: "network.serviceCIDRs", Flag: "service-cidr",
			Help: "range of the addresses of Services, or one for each IP family, in the order of the pods' ranges; if empty, " +
				defaultServices4 + ", or " + defaultServices6 + " for IPv6",
			value: func(c *KeelsonConfiguration) any { return &c.Network.ServiceCIDRs }},
		{Path: "network.nodeCIDRs", Flag: "node-address-ranges",
			Help: "ranges in which the addresses of all machines are; the API server rejects nodes that report another " +
				"address; if empty, nodes may report any address that is not reserved",
			value: func(c *KeelsonConfiguration) any { return &c.Network.NodeCIDRs }},
		{Path: "network.loadBalancerAddresses", Flag: "load-balancer-addresses",
			Help: "addresses for Services of the type LoadBalancer, each as FIRST-LAST or CIDR; the nodes announce them on " +
				"their local network; if empty, another controller must assign addresses",
			value: func(c *KeelsonConfiguration) any { return &c.Network.LoadBalancerAddresses }},
		{Path: "network.dnsDomain", Flag: "service-dns-domain",
			Help:  "DNS domain of the cluster's Services and pods",
			value: func(c *KeelsonConfiguration) any { return &c.Network.DNSDomain }},
		{Path: "network.plugin", Flag: "network-plugin",
			Help: "provider of the pod network: keelson, or external for a CNI plugin that you install, which must then also " +
				"enforce network policies",
			value: func(c *KeelsonConfiguration) any { return &c.Network.Plugin }},
		{Path: "apiServer", Help: "the API server on this machine, if it is a control plane"},
		{Path: "apiServer.advertiseAddress", Flag: "apiserver-advertise-address",
			Help: "address at which pods and other machines reach this API server; if empty, the first address of the " +
				"node",
			value: func(c *KeelsonConfiguration) any { return &c.APIServer.AdvertiseAddress }},
		{Path: "apiServer.port", Flag: "apiserver-bind-port",
			Help:  "port of the API server; the same on all control planes",
			value: func(c *KeelsonConfiguration) any { return &c.APIServer.Port }},
		{Path: "apiServer.certSANs", Flag: "apiserver-cert-extra-sans",
			Help: "additional DNS names and IP addresses under which clients reach the API server, for its " +
				"certificate",
			value: func(c *KeelsonConfiguration) any { return &c.APIServer.CertSANs }},
		{Path: "kubelet", Help: "the kubelet on this machine"},
		{Path: "kubelet.maxPods", Flag: "max-pods",
			Help:  "maximum number of pods on this machine",
			value: func(c *KeelsonConfiguration) any { return &c.Kubelet.MaxPods }},
		{Path: "kubelet.evictionHard", Flag: "eviction-hard", threshold: true,
			Help: "free memory, disk space and file numbers below which the kubelet evicts pods, each as an amount or a " +
				"percentage",
			value: func(c *KeelsonConfiguration) any { return &c.Kubelet.EvictionHard }},
		{Path: "runtime", Flag: "runtime",
			Help:  "OCI runtime of pods without a RuntimeClass on this machine: crun or runc",
			value: func(c *KeelsonConfiguration) any { return &c.Runtime }},
		{Path: "emulatedVersion", Flag: "emulated-version",
			Help:  "release of Kubernetes that the control plane emulates; if empty, it emulates none",
			value: func(c *KeelsonConfiguration) any { return &c.EmulatedVersion }},
		{Path: "ingress", Flag: "ingress",
			Help: "install the ingress proxy, which serves Ingresses of the class \"keelson\" at the address of the Service " +
				"kube-system/ingress",
			value: func(c *KeelsonConfiguration) any { return &c.Ingress }},
		{Path: "certificateValidityPeriod", Flag: "certificate-validity-period",
			Help: "lifetime of new certificates, such as 720h; they are renewed when a third of it is left; if empty, " +
				"8760h (a year)",
			value: func(c *KeelsonConfiguration) any { return &c.CertificateValidityPeriod }},
		{Path: "caCertificateValidityPeriod", Flag: "ca-certificate-validity-period",
			Help: "lifetime of new certificate authorities, which \"ctl certs rotate-ca\" replaces; if empty, 87600h " +
				"(ten years)",
			value: func(c *KeelsonConfiguration) any { return &c.CACertificateValidityPeriod }},
	}
}

// Default returns the field's default in the form of a flag's value. It is empty if the default is
// empty or depends on the machine.
func (f *Field) Default() string {
	if f.value == nil {
		return ""
	}
	c := constants()
	switch v := reflect.ValueOf(f.value(c)).Elem(); v.Kind() {
	case reflect.Map:
		var out []string
		for _, key := range slices.Sorted(maps.Keys(c.Kubelet.EvictionHard)) {
			if f.threshold {
				out = append(out, key+"<"+c.Kubelet.EvictionHard[key])
			}
		}
		return strings.Join(out, ",")
	case reflect.Slice, reflect.Bool:
		return ""
	default:
		return fmt.Sprint(v.Interface())
	}
}

// of returns the field's value in c, which can be set.
func (f *Field) of(c *KeelsonConfiguration) reflect.Value { return reflect.ValueOf(f.value(c)).Elem() }
