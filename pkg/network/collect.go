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

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// addressesDir is where, below CNI's own directory, addresses are kept that are given.
const addressesDir = "networks"

// Attachment is a sandbox's interface that is in use.
type Attachment struct {
	ContainerID string
	IfName      string
}

// Collect gives back what is allocated to sandboxes that are not among those in use: first by
// detaching those that CNI remembers, then, by the plugin, addresses that no one remembers. No sandbox
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
	if err := n.cni().GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("detach sandboxes that are gone: %w", err)
	}
	return nil
}

func (n *Network) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{n.cfg.BinDir}, n.cfg.CacheDir, nil)
}
