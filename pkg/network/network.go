// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/network/ports"
	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/nodeclaims"
)

const (
	// repairInterval is how often the kernel's state is compared with the wanted state, even if no
	// node has changed.
	repairInterval = 30 * time.Second
	// retryInterval is the delay before a failed update is retried.
	retryInterval = time.Second
)

// Config is the configuration of a Network.
type Config struct {
	// NodeName is this node's name.
	NodeName string
	// Client lists and watches nodes.
	Client kubernetes.Interface
	// ConfDir, BinDir and CacheDir are CNI's directories for configuration, plugins and data. Their
	// usual paths are /etc/cni/net.d, /opt/cni/bin and /var/lib/cni.
	ConfDir, BinDir, CacheDir string
	// Plugin is the path of the plugin program that attaches pods. It is linked into BinDir.
	Plugin string
	// MTU is the MTU of the pods' interfaces in bytes. 0 means the MTU of the link that carries their
	// packets, minus the overhead of VXLAN if VXLAN is used.
	MTU int
	// NoMasquerade keeps the source addresses of packets that leave the cluster. The surrounding
	// network must then have routes to pods.
	NoMasquerade bool
	// PodRanges are the cluster's pod ranges. The pod ranges of nodes must be inside them. If it is
	// empty, any range is allowed.
	PodRanges []netip.Prefix
	Clock     clock.Clock
	Log       *slog.Logger
}

// Network writes the node's CNI configuration and maintains the routes to the pods of other nodes.
type Network struct {
	cfg Config

	// checked is the last configuration that CNI's library and the plugins accepted. Only Run uses
	// it.
	checked []byte
	// bridgeSysctls is the directory of the settings of the kernel module br_netfilter.
	bridgeSysctls string
	// lost are the unreachable nodes, by name, as they were last logged. Only Run uses it.
	lost []string
	// refused has a text for each address or pod range that a Node reports but may not use, as last
	// logged. Only Run uses it.
	refused []string

	mu    sync.Mutex
	ready error // nil after the configuration was written and checked
}

var errNotYet = errors.New("pod network is not set up yet")

// New returns a Network. It starts no goroutines and changes nothing; Run does.
func New(cfg Config) *Network {
	return &Network{cfg: cfg, ready: errNotYet, bridgeSysctls: nft.BridgeSysctls}
}

// Ready returns nil if the CNI configuration is written and checked, and otherwise an error that
// says why it is not.
func (n *Network) Ready() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

func (n *Network) setReady(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = err
}

// Run keeps the network up to date until ctx ends. Configuration, routes and devices stay then, so
// that pods keep their network while the kubelet restarts.
func (n *Network) Run(ctx context.Context) error {
	k, err := newKernel()
	if err != nil {
		return err
	}
	defer k.close()
	n.resume(ctx)
	changed := follow.NewSignal()
	nodes := follow.NewCache(follow.Config[v1.Node, node]{
		Source: follow.Source(n.cfg.Client.CoreV1().Nodes()), Keep: nodeOf, Clock: n.cfg.Clock, Log: n.cfg.Log,
		Changed: func(_ types.NamespacedName, old, current *node) {
			if old == nil || current == nil || !old.same(current) {
				changed.Raise()
			}
		},
	})
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { nodes.Run(ctx) })
	if follow.Wait(ctx, nodes) != nil {
		return nil // an error means that ctx has ended
	}
	follow.Loop{
		Clock: n.cfg.Clock, Wake: changed, Period: repairInterval, FirstRetry: retryInterval, LastRetry: retryInterval,
	}.Run(ctx, func(ctx context.Context) bool {
		err := n.sync(ctx, k, nodes.All())
		if err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("Failed to update the pod network", "err", err)
		}
		return err == nil
	})
	return nil
}

// nodeOf returns the parts of a Node object that the network needs, to save memory: a large cluster
// has many nodes, and each of them watches all the others.
func nodeOf(n *v1.Node) *node {
	c := nodeclaims.Of(n)
	return &node{name: c.Name, podCIDRs: c.PodRanges, addresses: c.Addresses, uid: c.UID, created: c.Created}
}

func (n *node) same(as *node) bool {
	return n.uid == as.uid && slices.Equal(n.podCIDRs, as.podCIDRs) && slices.Equal(n.addresses, as.addresses)
}

// resume makes the network ready at once if an earlier process has left a valid configuration. It
// sends no request to the API server.
func (n *Network) resume(ctx context.Context) {
	content, err := os.ReadFile(filepath.Join(n.cfg.ConfDir, ConfigFile))
	if err != nil {
		return
	}
	if err := n.check(ctx, content); err != nil {
		return
	}
	if err := n.protect(content); err != nil {
		n.cfg.Log.Error("Failed to take over the pod network of an earlier kubelet, setting it up again", "err", err)
		return
	}
	n.setReady(nil)
}

// protect makes the kernel drop packets that a pod sends with a source address other than its own.
// It returns an error if network policies do not apply to packets between ports of the bridge.
func (n *Network) protect(content []byte) error {
	changed, err := restorePorts(content)
	if changed {
		n.cfg.Log.Info("Restored the rules that bind pods' bridge ports to their addresses")
	}
	return errors.Join(err, nft.BridgeFiltered(n.bridgeSysctls))
}

// check parses the configuration with CNI's library. Then it runs every plugin to check that it
// exists, supports the configuration's version (command VERSION) and can attach pods (command
// STATUS).
func (n *Network) check(ctx context.Context, content []byte) error {
	if bytes.Equal(content, n.checked) {
		return nil
	}
	if err := linkPlugin(n.cfg.Plugin, n.cfg.BinDir); err != nil {
		return err
	}
	list, err := libcni.NetworkConfFromBytes(content)
	if err != nil {
		return fmt.Errorf("parse CNI configuration: %w", err)
	}
	if _, err := n.cni().ValidateNetworkList(ctx, list); err != nil {
		return fmt.Errorf("check CNI configuration: %w", err)
	}
	if err := n.cni().GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("status of CNI plugins: %w", err)
	}
	n.checked = content
	return nil
}

// sync updates the kernel's state, and then the configuration. Routes come before the
// configuration, so that a pod that the configuration allows to start can reach other pods at once.
func (n *Network) sync(ctx context.Context, k *kernel, all map[types.NamespacedName]*node) error {
	links, err := k.links()
	if err != nil {
		return err
	}
	nodes := make([]node, 0, len(all))
	for _, n := range all {
		nodes = append(nodes, *n)
	}
	w := plan(n.cfg.NodeName, nodes, links, n.cfg.PodRanges)
	if !slices.Equal(w.refused, n.refused) {
		n.refused = w.refused
		n.cfg.Log.Warn("Ignoring addresses or pod ranges that Nodes report but may not use", "ranges", w.refused)
	}
	if len(w.podCIDRs) == 0 {
		if n.Ready() != nil { // a network that was ready before keeps working
			n.setReady(fmt.Errorf("node %s has no pod CIDR", n.cfg.NodeName))
		}
		return nil
	}
	if n.cfg.MTU != 0 {
		w.mtu = n.cfg.MTU
	}
	if n.cfg.NoMasquerade {
		w.masquerade = masquerade{}
	}
	if !slices.Equal(w.unreachable, n.lost) {
		n.lost = w.unreachable
		n.cfg.Log.Error("Pods of some nodes are unreachable: the nodes share no link and have no address for VXLAN",
			"nodes", w.unreachable)
	}
	if err := nft.BridgeFiltered(n.bridgeSysctls); err != nil {
		n.cfg.Log.Error("Network policies between pods of this node were not enforced; if br_netfilter is loaded, its "+
			"settings are turned on now", "err", err)
	}
	return errors.Join(enable(sysctls(w.podCIDRs)), k.apply(w), n.configure(ctx, w))
}

// configure checks and writes the CNI configuration, and sets the result of Ready.
func (n *Network) configure(ctx context.Context, w wanted) error {
	content, err := renderConf(w.podCIDRs, w.mtu, filepath.Join(n.cfg.CacheDir, addressesDir))
	if err == nil {
		err = n.check(ctx, content)
	}
	if err == nil {
		err = n.protect(content)
	}
	if err == nil {
		var changed bool
		if changed, err = writeConf(n.cfg.ConfDir, content); changed {
			n.cfg.Log.Info("CNI configuration written", "podCIDRs", fmt.Sprint(w.podCIDRs), "mtu", w.mtu)
		}
	}
	if ctx.Err() == nil {
		n.setReady(err)
	}
	return err
}

// Cleanup removes everything that Run has created on the node. Attached pods keep their interfaces.
func (n *Network) Cleanup(context.Context) error {
	k, err := newKernel()
	if err != nil {
		return err
	}
	defer k.close()
	return errors.Join(removeConf(n.cfg.ConfDir), k.apply(wanted{}), removePorts())
}

func removePorts() error {
	t, err := ports.Open(0)
	if err != nil {
		return err
	}
	return errors.Join(t.Remove(), t.Close())
}
