// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	core "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// routeProtocol marks the routes that keepRoutes owns.
const routeProtocol = 201

// keepRoutes keeps a route to every node's pods in the cluster's namespace, so
// that the API server reaches webhooks and aggregated servers, until ctx is done.
func (s *supervisor) keepRoutes(ctx context.Context) {
	client, err := clusterClient(s.cfg)
	if err != nil {
		s.deps.Log.Error("Routes to pods are not kept", "err", err)
		return
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes().Informer()
	report := func(err error) {
		if err != nil {
			s.deps.Log.Error("Route not set", "err", err)
		}
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { report(routeNode(obj, netlink.RouteReplace)) },
		UpdateFunc: func(_, obj any) { report(routeNode(obj, netlink.RouteReplace)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			report(routeNode(obj, netlink.RouteDel))
		},
	})
	if err != nil {
		s.deps.Log.Error("Routes to pods are not kept", "err", err)
		return
	}
	nodes.Run(ctx.Done())
}

// routeNode hands the routes of a node's pod ranges to set.
func routeNode(obj any, set func(*netlink.Route) error) error {
	node, ok := obj.(*core.Node)
	if !ok {
		return nil
	}
	for _, cidr := range node.Spec.PodCIDRs {
		_, dst, err := net.ParseCIDR(cidr)
		if err != nil {
			return fmt.Errorf("node %s: pod range: %w", node.Name, err)
		}
		gateway := gatewayTo(node, dst.IP.To4() != nil)
		if gateway == nil {
			continue // its kubelet has not reported yet
		}
		if err := set(&netlink.Route{Dst: dst, Gw: gateway, Protocol: routeProtocol}); err != nil {
			return fmt.Errorf("node %s: route to %s: %w", node.Name, cidr, err)
		}
	}
	return nil
}

// gatewayTo is the first of a node's addresses that is of a family.
func gatewayTo(node *core.Node, ipv4 bool) net.IP {
	for _, a := range node.Status.Addresses {
		ip := net.ParseIP(a.Address)
		if a.Type == core.NodeInternalIP && ip != nil && (ip.To4() != nil) == ipv4 {
			return ip
		}
	}
	return nil
}

// clusterClient is a client with all rights, for use in the cluster's namespace.
func clusterClient(c *Config) (kubernetes.Interface, error) {
	cfg, err := adminConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Host = c.clusterServer()
	return newClient(cfg)
}

// machineClient is a client with all rights, for use on the machine.
func machineClient(c *Config) (kubernetes.Interface, error) {
	cfg, err := adminConfig(c)
	if err != nil {
		return nil, err
	}
	return newClient(cfg)
}

func adminConfig(c *Config) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.dirs().kubeconfig("super-admin"))
	if err != nil {
		return nil, fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = 100, 200
	return cfg, nil
}

func newClient(cfg *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return client, nil
}
