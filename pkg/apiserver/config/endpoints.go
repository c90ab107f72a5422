// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Values of Endpoints.Reconciler.
const (
	EndpointsLease       = "lease"        // the endpoints are the servers whose leases have not expired
	EndpointsNone        = "none"         // the server does not write endpoints
	EndpointsMasterCount = "master-count" // the endpoints are the last Count servers that registered
)

// Endpoints configures the endpoints and the port of the kubernetes service.
type Endpoints struct {
	// Reconciler is one of the constants above. If it is empty, EndpointsLease is used.
	Reconciler string
	// Count is the number of servers. Only EndpointsMasterCount uses it.
	Count int
	// NodePort is the service's port on every node, or 0 if it has no node port.
	NodePort int
}

func defaultEndpoints() Endpoints { return Endpoints{Reconciler: EndpointsLease, Count: 1} }

func (e *Endpoints) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.Reconciler, "endpoint-reconciler-type", e.Reconciler,
		"which API servers are the endpoints of the Service default/kubernetes: lease (all servers that "+
			"renew their lease in etcd), master-count (the last --apiserver-count servers that were added; "+
			"deprecated) or none (the server does not change the endpoints)")
	fs.IntVar(&e.Count, "apiserver-count", e.Count,
		"number of API servers in the cluster, for --endpoint-reconciler-type=master-count")
	// MarkDeprecated cannot fail, because the flag exists.
	_ = fs.MarkDeprecated("apiserver-count", "apiserver-count is deprecated and will be removed in a future version.")
	fs.IntVar(&e.NodePort, "kubernetes-service-node-port", 0,
		"port of the Service default/kubernetes on every node; the Service then has the type NodePort; 0 "+
			"means the type ClusterIP")
}

func (e *Endpoints) validate(nodePorts PortRange, add func(format string, args ...any)) {
	if e.NodePort < 0 || e.NodePort > 65535 {
		add("--kubernetes-service-node-port %d must be between 0 and 65535, inclusive. If 0, the Kubernetes "+
			"master service will be of type ClusterIP", e.NodePort)
	}
	if e.NodePort > 0 && !nodePorts.Contains(e.NodePort) {
		add("kubernetes service node port range %s doesn't contain %d", nodePorts, e.NodePort)
	}
	if e.Count < 1 {
		add("--apiserver-count should be a positive number, but value '%d' provided", e.Count)
	}
}

// validateUse returns an error for the first value that Kubernetes accepts and this server does not
// support.
func (e *Endpoints) validateUse() error {
	if !slices.Contains([]string{"", EndpointsLease, EndpointsNone, EndpointsMasterCount}, e.Reconciler) {
		return fmt.Errorf("Reconciler not implemented: %s", e.Reconciler) //nolint:staticcheck // Kubernetes' message
	}
	return nil
}
