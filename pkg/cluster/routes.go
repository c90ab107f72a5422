// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// routeProtocol is the protocol number of the routes that keepRoutes sets, to distinguish them from
// other routes.
const routeProtocol = 201

// Delays before a failed update of routes is retried: the first delay and the maximum.
const (
	firstRouteRetry = time.Second
	lastRouteRetry  = 30 * time.Second
)

// keepRoutes maintains a route to the pods of each node in the cluster's network namespace until
// ctx ends. The API server needs these routes to reach webhooks and aggregated API servers.
func (s *supervisor) keepRoutes(ctx context.Context) {
	client, err := clusterClient(s.cfg)
	if err != nil {
		s.deps.Log.Error("Failed to maintain routes to pods", "err", err)
		return
	}
	routes := &podRoutes{cfg: s.cfg, set: map[string]netip.Addr{}, replace: netlink.RouteReplace, remove: netlink.RouteDel}
	changed := follow.NewSignal()
	nodes := follow.NewCache(follow.Config[core.Node, nodeclaims.Claim]{
		Source: follow.Source(client.CoreV1().Nodes()),
		Keep: func(n *core.Node) *nodeclaims.Claim {
			claim := nodeclaims.Of(n)
			return &claim
		},
		Changed: func(types.NamespacedName, *nodeclaims.Claim, *nodeclaims.Claim) { changed.Raise() },
		Clock:   s.deps.Clock, Log: s.deps.Log,
	})
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { nodes.Run(ctx) })
	if follow.Wait(ctx, nodes) != nil {
		return // ctx has ended
	}
	follow.Loop{
		Clock: s.deps.Clock, Wake: changed, FirstRetry: firstRouteRetry, LastRetry: lastRouteRetry,
	}.Run(ctx, func(context.Context) bool {
		err := routes.sync(nodes.All())
		if err != nil {
			s.deps.Log.Error("Failed to set routes to pods", "err", err)
		}
		return err == nil
	})
}

// podRoutes has the routes to nodes' pods that are set in the kernel.
type podRoutes struct {
	cfg             *Config
	set             map[string]netip.Addr // gateways by pod range
	replace, remove func(*netlink.Route) error
}

// sync updates the routes from the Node objects. A compromised node may report a wrong pod range or
// address. A range therefore gets a route only if it is inside the cluster's pod ranges and the
// node owns it, and a route is removed only when no node owns its range any more.
func (p *podRoutes) sync(nodes map[types.NamespacedName]*nodeclaims.Claim) error {
	want := wantedRoutes(p.cfg, nodes)
	var errs []error
	for dst, gateway := range want {
		if p.set[dst] == gateway {
			continue
		}
		if err := p.replace(podRoute(dst, gateway)); err != nil {
			errs = append(errs, fmt.Errorf("route to %s: %w", dst, err))
			continue
		}
		p.set[dst] = gateway
	}
	for dst, gateway := range p.set {
		if want[dst].IsValid() {
			continue
		}
		if err := p.remove(podRoute(dst, gateway)); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("old route to %s: %w", dst, err))
			continue
		}
		delete(p.set, dst)
	}
	return errors.Join(errs...)
}

func podRoute(dst string, gateway netip.Addr) *netlink.Route {
	return &netlink.Route{Dst: ipNet(netip.MustParsePrefix(dst)), Gw: gateway.AsSlice(), Protocol: routeProtocol}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// wantedRoutes returns the gateway for each node's pod ranges.
func wantedRoutes(c *Config, nodes map[types.NamespacedName]*nodeclaims.Claim) map[string]netip.Addr {
	claims := make([]nodeclaims.Claim, 0, len(nodes))
	for _, claim := range nodes {
		claims = append(claims, *claim)
	}
	var within, hosts []netip.Prefix
	for _, r := range c.IPFamily.ranges() {
		within, hosts = append(within, r.Pods), append(hosts, r.hosts()...)
	}
	settled, _ := nodeclaims.Settle(claims, within)
	want := map[string]netip.Addr{}
	for _, claim := range settled {
		for _, dst := range claim.PodRanges {
			at := slices.IndexFunc(claim.Addresses, func(a netip.Addr) bool {
				return a.Is4() == dst.Addr().Is4() && slices.ContainsFunc(hosts, func(p netip.Prefix) bool { return p.Contains(a) })
			})
			if at >= 0 { // otherwise the node has no address of this family yet
				want[dst.String()] = claim.Addresses[at]
			}
		}
	}
	return want
}

// clusterClient returns a client with administrator rights that connects from inside the cluster's
// network namespace.
func clusterClient(c *Config) (kubernetes.Interface, error) {
	cfg, err := adminConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Host = c.clusterServer()
	return newClient(cfg)
}

// machineClient returns a client with administrator rights that connects from the machine's network
// namespace.
func machineClient(c *Config) (kubernetes.Interface, error) {
	cfg, err := adminConfig(c)
	if err != nil {
		return nil, err
	}
	return newClient(cfg)
}

func adminConfig(c *Config) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.dirs().control().Kubeconfig("super-admin"))
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
