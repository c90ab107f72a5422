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
// has exited, and then reads what is left of the process's input.
//
// If the FIFOs were not kept open, a FIFO would end as soon as the process closes its end of the
// pipe, as the shell does for "cat >file". containerd's CRI server takes the end of stdout or
// stderr for the end of the process, and closes the process's stdin. Input that the client sends
// later would be lost, although the exit code is 0.
//
// If the rest of the input were not read, a process that exits before it has read its input would
// never end for the client. The CRI server waits until the input is written to the FIFO.
// containerd's own reader of the FIFO waits for the process, and keeps the read end of the
// process's pipe open, so that writing to the pipe does not fail.
type outputHolder struct {
	task.TTRPCTaskService
}

// RegisterTTRPC implements shim.TTRPCService.
func (h *outputHolder) RegisterTTRPC(server *ttrpc.Server) error {
	task.RegisterTTRPCTaskService(server, h)
	return nil
}

// Start starts a process and keeps its output FIFOs open.
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

// release waits until a process has exited, closes its output FIFOs, and reads the rest of its
// input.
func (h *outputHolder) release(ctx context.Context, r *task.StartRequest, held []*os.File, stdin string) {
	if _, err := h.Wait(ctx, &task.WaitRequest{ID: r.ID, ExecID: r.ExecID}); err != nil {
		// containerd has deleted the process. It does so only after the process has exited.
		log.G(ctx).WithError(err).Debug("Closing the outputs of a process that was already deleted")
	}
	closeAll(held)
	input, err := openFIFOs(os.O_RDONLY|syscall.O_NONBLOCK, stdin)
	defer closeAll(input)
	for _, f := range input {
		// The copy ends when the CRI server and the shim have closed their ends of the FIFO, which
		// they do at the latest when the process is deleted.
		_, err = io.Copy(io.Discard, f)
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("Failed to read the rest of the input")
	}
}

// openFIFOs opens those of the paths that are FIFOs, without waiting for the other end to be
// opened. A path may also be empty, a regular file, or the URI of a logging program.
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
