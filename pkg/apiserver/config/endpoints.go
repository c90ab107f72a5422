// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// The ways in which servers agree on the endpoints of the kubernetes service.
const (
	EndpointsLease       = "lease"        // those whose records are fresh
	EndpointsNone        = "none"         // nobody writes them
	EndpointsMasterCount = "master-count" // the last Count that wrote themselves in
)

// Endpoints says how the kubernetes service leads to the servers.
type Endpoints struct {
	// Reconciler is one of the constants Endpoints...; empty is EndpointsLease.
	Reconciler string
	// Count is how many servers there are, for EndpointsMasterCount.
	Count int
	// NodePort is the service's port on every node; 0: it has none.
	NodePort int
}

func defaultEndpoints() Endpoints { return Endpoints{Reconciler: EndpointsLease, Count: 1} }

func (e *Endpoints) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.Reconciler, "endpoint-reconciler-type", e.Reconciler, "how the endpoints of the kubernetes service are kept: lease (servers that renewed their record), master-count (the last --apiserver-count that came; deprecated), none")
	fs.IntVar(&e.Count, "apiserver-count", e.Count, "servers in the cluster, for --endpoint-reconciler-type=master-count")
	_ = fs.MarkDeprecated("apiserver-count", "apiserver-count is deprecated and will be removed in a future version.") // which there is
	fs.IntVar(&e.NodePort, "kubernetes-service-node-port", 0, "port of every node that leads to the kubernetes service, which is of type NodePort then; 0: ClusterIP")
}

func (e *Endpoints) validate(nodePorts PortRange, add func(format string, args ...any)) {
	if e.NodePort < 0 || e.NodePort > 65535 {
		add("--kubernetes-service-node-port %d must be between 0 and 65535, inclusive. If 0, the Kubernetes master service will be of type ClusterIP", e.NodePort)
	}
	if e.NodePort > 0 && !nodePorts.Contains(e.NodePort) {
		add("kubernetes service node port range %s doesn't contain %d", nodePorts, e.NodePort)
	}
	if e.Count < 1 {
		add("--apiserver-count should be a positive number, but value '%d' provided", e.Count)
	}
}

// validateUse tells what does not work though it may be said.
func (e *Endpoints) validateUse() error {
	if !slices.Contains([]string{"", EndpointsLease, EndpointsNone, EndpointsMasterCount}, e.Reconciler) {
		return fmt.Errorf("Reconciler not implemented: %s", e.Reconciler) //nolint:staticcheck // Kubernetes' words
	}
	return nil
}
