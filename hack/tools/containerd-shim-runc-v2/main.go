// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command containerd-shim-runc-v2 is containerd's shim for runc and crun with two changes.
//
// It lets more garbage gather. There is one shim for each pod. In a pod's start containerd's own
// collects garbage three to four times, once for each 1.6 MB. The shim itself returns unused memory
// to the system every 30 seconds.
//
// It keeps the output FIFOs of a process open until the process has exited: see outputHolder.
package main

import (
	"context"
	"runtime/debug"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// garbage is how much garbage may gather, in percent of the memory in use. The runtime counts at
// least 4 MB as in use.
const garbage = 200

func main() {
	// The shim initializes plugins after it has set its own percentage.
	registry.Register(&plugin.Registration{Type: plugins.InternalPlugin, ID: "garbage",
		InitFn: func(*plugin.InitContext) (any, error) {
			debug.SetGCPercent(garbage)
			return struct{}{}, nil
		}})
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskService,
	})
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}

// newTaskService returns containerd's task service with the outputs of its processes held.
func newTaskService(ic *plugin.InitContext) (any, error) {
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	stop, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	service, err := task.NewTaskService(ic.Context, publisher.(shim.Publisher), stop.(shutdown.Service))
	if err != nil {
		return nil, err
	}
	return &outputHolder{service}, nil
}
