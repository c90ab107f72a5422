// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command containerd-shim-runc-v2 is containerd's shim for runc and crun, with two changes.
//
// The first change makes Go's garbage collection less frequent. There is one shim for each pod.
// While a pod starts, the original shim collects garbage three to four times, each time after 1.6
// MB of allocations. The shim returns unused memory to the system every 30 seconds anyway.
//
// The second change keeps the output FIFOs of a process open until the process has exited: see
// outputHolder.
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

// garbage is the value of GOGC: the heap may grow by this percentage of the memory in use before
// garbage is collected. The Go runtime counts at least 4 MB as in use.
const garbage = 200

func main() {
	// containerd's code sets another value of GOGC before it initializes plugins, so this plugin
	// can replace that value.
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

// newTaskService returns containerd's task service, wrapped in an outputHolder.
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
