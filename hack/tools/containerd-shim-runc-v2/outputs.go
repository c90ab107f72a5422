// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/fifo"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
)

// outputHolder is a task service that keeps the output FIFOs of each process open until the process
// has exited.
//
// Without it, a FIFO ends as soon as the process closes its end of the pipe, as the shell does for
// "cat >file". containerd's CRI server takes the end of stdout or of stderr for the end of the
// process and closes its stdin: what the client sends from then on is lost, and the exit code is 0.
type outputHolder struct {
	task.TTRPCTaskService
}

// RegisterTTRPC implements shim.TTRPCService.
func (h *outputHolder) RegisterTTRPC(server *ttrpc.Server) error {
	task.RegisterTTRPCTaskService(server, h)
	return nil
}

// Start starts a process with its output FIFOs held.
func (h *outputHolder) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	state, err := h.State(ctx, &task.StateRequest{ID: r.ID, ExecID: r.ExecID})
	if err != nil {
		return nil, err
	}
	held, err := openOutputs(state.Stdout, state.Stderr)
	if err != nil {
		return nil, err
	}
	resp, err := h.TTRPCTaskService.Start(ctx, r)
	if err != nil {
		closeAll(held)
		return nil, err
	}
	if len(held) == 0 {
		return resp, nil
	}
	go func() {
		defer closeAll(held)
		ctx := context.WithoutCancel(ctx)
		if _, err := h.Wait(ctx, &task.WaitRequest{ID: r.ID, ExecID: r.ExecID}); err != nil {
			// containerd has deleted the process, which it does only after its exit.
			log.G(ctx).WithError(err).Debug("Process deleted before its outputs were released")
		}
	}()
	return resp, nil
}

// openOutputs opens those outputs that are FIFOs. An output may also be empty, a file or the URI of
// a logging program. Opening a FIFO for both directions does not wait for the other side.
func openOutputs(paths ...string) ([]*os.File, error) {
	var held []*os.File
	for _, path := range paths {
		is, err := fifo.IsFifo(path)
		if err == nil && !is {
			continue
		}
		var f *os.File
		if err == nil {
			f, err = os.OpenFile(path, os.O_RDWR, 0)
		}
		if err != nil {
			closeAll(held)
			return nil, err
		}
		held = append(held, f)
	}
	return held, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
