// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command containerd-shim-runc-v2 is containerd's shim, which lets more garbage gather. There is one for each pod; in a pod's start
// containerd's own collects it three to four times, whenever 1.6 MB have come. What gathers is given back
// every 30 seconds by the shim itself.
package main

import (
	"context"
	"runtime/debug"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// garbage is how much may gather, in percent of the 4 MB from which the runtime counts if less is in use.
const garbage = 200

func main() {
	// Plugins are made after the shim has set what it thinks right.
	registry.Register(&plugin.Registration{Type: plugins.InternalPlugin, ID: "garbage", InitFn: func(*plugin.InitContext) (any, error) {
		debug.SetGCPercent(garbage)
		return struct{}{}, nil
	}})
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}
