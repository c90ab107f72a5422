// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/fifo"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
)

// outputHolder is a task service that keeps the output FIFOs of each process open until the process
// has exited, and reads what is left of its input then.
//
// Without the first, a FIFO ends as soon as the process closes its end of the pipe, as the shell
// does for "cat >file". containerd's CRI server takes the end of stdout or of stderr for the end of
// the process and closes its stdin: what the client sends from then on is lost, and the exit code
// is 0.
//
// Without the second, a process that exits before it has read its input never ends for the client.
// The CRI server waits until the input is written to the FIFO, and containerd's own reader of the
// FIFO waits for the process: it holds the read end of the process's pipe, which therefore does not
// break.
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
	held, err := openFIFOs(os.O_RDWR, state.Stdout, state.Stderr)
	if err != nil {
		return nil, err
	}
	resp, err := h.TTRPCTaskService.Start(ctx, r)
	if err != nil {
		closeAll(held)
		return nil, err
	}
	if len(held) > 0 {
		go h.release(context.WithoutCancel(ctx), r, held, state.Stdin)
	}
	return resp, nil
}

// release waits for the exit of a process, closes its outputs and reads the rest of its input.
func (h *outputHolder) release(ctx context.Context, r *task.StartRequest, held []*os.File, stdin string) {
	if _, err := h.Wait(ctx, &task.WaitRequest{ID: r.ID, ExecID: r.ExecID}); err != nil {
		// containerd has deleted the process, which it does only after its exit.
		log.G(ctx).WithError(err).Debug("Process deleted before its outputs were released")
	}
	closeAll(held)
	input, err := openFIFOs(os.O_RDONLY|syscall.O_NONBLOCK, stdin)
	defer closeAll(input)
	for _, f := range input {
		// It ends when the CRI server and the shim have closed their ends, at the latest when the
		// process is deleted.
		_, err = io.Copy(io.Discard, f)
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("Failed to read the rest of the input")
	}
}

// openFIFOs opens those paths that are FIFOs, in a mode that does not wait for the other side. A
// path may also be empty, a file or the URI of a logging program.
func openFIFOs(flag int, paths ...string) ([]*os.File, error) {
	var opened []*os.File
	for _, path := range paths {
		is, err := fifo.IsFifo(path)
		if err == nil && !is {
			continue
		}
		var f *os.File
		if err == nil {
			f, err = os.OpenFile(path, flag, 0)
		}
		if err != nil {
			closeAll(opened)
			return nil, err
		}
		opened = append(opened, f)
	}
	return opened, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
