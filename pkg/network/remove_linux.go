// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/nft"
)

// Names of the nftables tables of the plugin portmap, and of the devices of the plugin bandwidth.
const (
	portmapTable    = "cni_hostport"
	bandwidthPrefix = "bwp"
)

// Remove removes the whole pod network from the machine: everything that Cleanup removes, the network
// namespaces of pods, the bridge, its ports, and what plugins have left. All pods must have ended.
func (n *Network) Remove(ctx context.Context) error {
	return errors.Join(n.removeNamespaces(), removeLinks(), n.Cleanup(ctx), removePortmap())
}

// removeNamespaces removes the network namespaces of all sandboxes. CNI's library makes their directory
// a mount point.
func (n *Network) removeNamespaces() error {
	entries, err := os.ReadDir(NamespacesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	namespaces := NewNamespaces(NamespacesDir, "/proc", n.cfg.Clock)
	var errs []error
	others := false
	for _, e := range entries {
		if namespaceName.MatchString(e.Name()) {
			errs = append(errs, namespaces.Remove(filepath.Join(NamespacesDir, e.Name())))
		} else {
			others = true
		}
	}
	if err := errors.Join(errs...); err != nil || others {
		return err
	}
	// EINVAL means that it is not a mount point.
	if err := unix.Unmount(NamespacesDir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", NamespacesDir, err)
	}
	if err := os.Remove(NamespacesDir); err != nil {
		return fmt.Errorf("directory of network namespaces: %w", err)
	}
	return nil
}

// removeLinks removes the bridge, its ports, and the devices of the plugin bandwidth.
func removeLinks() error {
	all, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	bridge := 0
	for _, l := range all {
		if l.Attrs().Name == bridgeName {
			bridge = l.Attrs().Index
		}
	}
	var errs []error
	for _, l := range all {
		a := l.Attrs()
		if a.Name != bridgeName && (bridge == 0 || a.MasterIndex != bridge) &&
			(l.Type() != "ifb" || !strings.HasPrefix(a.Name, bandwidthPrefix)) {
			continue
		}
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove link %s: %w", a.Name, err))
		}
	}
	return errors.Join(errs...)
}

func removePortmap() error {
	conn, err := nft.Open(0)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, p := range []nft.Packet{{}, {IPv6: true}} {
		conn.Drop(&nftables.Table{Name: portmapTable, Family: p.TableFamily()})
	}
	if err := conn.Commit(nil); err != nil {
		return fmt.Errorf("remove table of host ports: %w", err)
	}
	return nil
}
