// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"net/netip"
	"os"
	"strings"
	"time"
)

// Names of the control plane's programs. The files of a program have its name.
const (
	APIServer         = "apiserver"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
)

// RestartOrder returns the programs of clusters in the order in which an upgrade restarts them. The API server
// comes first of Keelson's programs, because no program may be newer than the API server that it uses. Then
// comes the agent, whose load balancer leads the others to API servers that are not older. A return to an
// older minor version of Kubernetes needs the reverse order.
func RestartOrder() []string {
	return []string{"etcd", APIServer, "agent", ControllerManager, Scheduler, "containerd", "kubelet", "proxy"}
}

// Values of [Cluster].NetworkPlugin.
const (
	OwnNetwork = "keelson"
	// ExternalNetwork means that the operator installs the pod network.
	ExternalNetwork = "external"
)

// Cluster has what all machines of a cluster have in common.
type Cluster struct {
	// Name is the cluster's name in kubeconfig files, and the token of its etcd members.
	Name string
	// Domain is the DNS domain of Services, for example cluster.local.
	Domain string
	// Families has the address ranges of each IP family, the primary family first.
	Families []Family
	// NodeRanges has the address ranges (CIDR) of nodes, separated by commas. If it is empty, nodes
	// may have any address that is not reserved.
	NodeRanges string
	// LoadBalancers has the address ranges of Services of type LoadBalancer, separated by commas.
	// Each is FIRST-LAST or a prefix. If it is empty, such Services get no address.
	LoadBalancers string
	// NetworkPlugin is OwnNetwork (also if empty) or ExternalNetwork.
	NetworkPlugin string
	// EmulatedVersion is the release of Kubernetes that the control plane emulates, for example
	// "1.36". If it is empty, the control plane emulates none.
	EmulatedVersion string
	// Ingress enables the ingress controller for the IngressClass keelson.
	Ingress bool
	// Machines is true for a cluster of real machines. On each of them, an agent (pkg/machine/agent)
	// follows the API servers and requests the certificate of the proxy.
	Machines bool
	// ForwardDNS makes the cluster's DNS servers forward names outside Domain to the name servers of
	// their nodes. Without it, such names do not exist.
	ForwardDNS bool
	// NoDNS leaves CoreDNS out, because an administrator has removed it.
	NoDNS bool
	// Life has the lifetimes of new certificates.
	Life Lifetimes
}

// Lifetimes has the lifetimes of new certificates. If one is 0, it is that of package pki.
type Lifetimes struct{ Leaf, Authority time.Duration }

// Family has the address ranges of one IP family.
type Family struct {
	Pods, Services netip.Prefix
	// DNS is the address of the Service kube-dns.
	DNS netip.Addr
}

// API returns the address of the Service kubernetes, which is the first address of Services.
func (f Family) API() netip.Addr { return f.Services.Masked().Addr().Next() }

// Unspecified returns the address at which servers listen on all addresses of a host.
func (f Family) Unspecified() netip.Addr {
	if f.Services.Addr().Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func (f Family) loopback() string {
	if f.Services.Addr().Is4() {
		return "127.0.0.1"
	}
	return "::1"
}

func (c *Cluster) ownNetwork() bool { return c.NetworkPlugin != ExternalNetwork }

func (c *Cluster) podRanges() string {
	return c.join(func(f Family) string { return f.Pods.String() })
}

func (c *Cluster) serviceRanges() string {
	return c.join(func(f Family) string { return f.Services.String() })
}

// join returns one value of each family, separated by commas, in the form that flags and
// configuration files use.
func (c *Cluster) join(value func(Family) string) string {
	out := make([]string, len(c.Families))
	for i, f := range c.Families {
		out[i] = value(f)
	}
	return strings.Join(out, ",")
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func pointer[T any](v T) *T { return &v }
