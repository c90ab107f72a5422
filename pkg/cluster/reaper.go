// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts processes, waits for them, and waits for orphans that the kernel reparents to this
// process. No other code in the process may wait for child processes. In particular, the process
// must not use os/exec, because the reaper would receive the exit statuses that os/exec waits for.
type reaper struct {
	mu sync.Mutex // held while a process is started and recorded, so that its exit is not missed
	// children has the channel that receives the exit status, by process ID. mu guards it.
	children map[int]chan syscall.WaitStatus
}

func newReaper() *reaper { return &reaper{children: map[int]chan syscall.WaitStatus{}} }

// run waits for child processes and reports their exit statuses, until ctx ends.
func (r *reaper) run(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	for {
		r.collect()
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
	}
}

func (r *reaper) collect() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		exited := r.children[pid]
		delete(r.children, pid)
		r.mu.Unlock()
		if exited != nil {
			exited <- status
		}
	}
}

// start runs argv. It returns the process ID, and a channel that receives the exit status.
func (r *reaper) start(argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	exited := make(chan syscall.WaitStatus, 1)
	r.children[pid] = exited
	return pid, exited, nil
}
