// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// addressesDir is where, below CNI's own directory, host-local keeps what it allocated.
const addressesDir = "networks"

// Attachment is a sandbox's interface that is in use.
type Attachment struct {
	ContainerID string
	IfName      string
}

// Collect gives back what is allocated to sandboxes that are not among those in use: first by
// detaching those that CNI remembers, then by releasing addresses that no one remembers. No sandbox
// may be made meanwhile; so it is for the start of the kubelet.
func (n *Network) Collect(ctx context.Context, inUse []Attachment) error {
	content, err := os.ReadFile(filepath.Join(n.cfg.ConfDir, confName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever attached
	}
	if err != nil {
		return fmt.Errorf("read CNI configuration: %w", err)
	}
	list, err := libcni.NetworkConfFromBytes(content)
	if err != nil {
		return fmt.Errorf("parse CNI configuration: %w", err)
	}
	valid := make([]types.GCAttachment, len(inUse))
	for i, a := range inUse {
		valid[i] = types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}
	}
	gcErr := n.cni().GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
	if gcErr != nil {
		gcErr = fmt.Errorf("detach sandboxes that are gone: %w", gcErr)
	}
	return errors.Join(gcErr, releaseAddresses(filepath.Join(n.cfg.CacheDir, addressesDir, networkName), inUse))
}

func (n *Network) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{n.cfg.BinDir}, n.cfg.CacheDir, nil)
}

// releaseAddresses removes the reservations in a host-local directory, a file for each address with
// the sandbox's ID in its first line, of sandboxes that are not in use.
func releaseAddresses(dir string, inUse []Attachment) error {
	used := map[string]bool{}
	for _, a := range inUse {
		used[a.ContainerID] = true
	}
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock addresses: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // as the plugin does; freed by closing
		return fmt.Errorf("lock addresses: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read address: %w", err)
		}
		id, _, _ := strings.Cut(string(content), "\n")
		if used[strings.TrimSpace(id)] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("release address: %w", err)
		}
	}
	return nil
}
