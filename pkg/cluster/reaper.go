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

// reaper starts processes and collects them, and every orphan that the kernel
// hands to this process. It must be the only one that waits in its process:
// os/exec would lose its children to it.
type reaper struct {
	mu sync.Mutex // held across fork and bookkeeping, so that no exit is missed
	// +guarded by mu: who waits for which child.
	children map[int]chan syscall.WaitStatus
}

func newReaper() *reaper { return &reaper{children: map[int]chan syscall.WaitStatus{}} }

// run collects children until ctx is done.
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

// start runs argv; the channel tells how it ended.
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
