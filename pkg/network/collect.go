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

// addressesDir is the directory for allocated addresses in CNI's cache directory.
const addressesDir = "networks"

// Attachment identifies a network interface of a sandbox that is in use.
type Attachment struct {
	ContainerID string
	IfName      string
}

// Collect frees addresses and other resources of sandboxes that are not in use. It first detaches
// the sandboxes that CNI has recorded. Then the plugin frees addresses that CNI has not recorded.
// No sandbox may be created meanwhile, so the kubelet calls Collect when it starts.
func (n *Network) Collect(ctx context.Context, inUse []Attachment) error {
	content, err := os.ReadFile(filepath.Join(n.cfg.ConfDir, ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no sandbox has ever been attached
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
		return fmt.Errorf("detach removed sandboxes: %w", err)
	}
	return nil
}

func (n *Network) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{n.cfg.BinDir}, n.cfg.CacheDir, nil)
}
