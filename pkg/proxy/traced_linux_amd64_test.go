// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// cut is a point at which a process is killed: at its nth transaction. If the field taken is false,
// it is killed before the kernel gets the transaction, otherwise after the kernel has applied it.
type cut struct {
	n     int
	taken bool
}

const syscallStop = unix.SIGTRAP | 0x80

// runUntil runs a process, kills it at a cut, and reports whether it reached the cut. When the test
// closes idle, because the process has no more work, runUntil kills it too. If it then dies in its
// nth transaction, the cut counts as reached if its field taken is true.
func runUntil(cmd *exec.Cmd, at cut, idle <-chan struct{}) (bool, error) {
	runtime.LockOSThread() // all calls of ptrace must come from the same thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	defer func() { _ = cmd.Wait() }() // only completes the output; the loop below waits for the end of the process
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-idle:
			_ = unix.Kill(pid, unix.SIGKILL) // the loop below then returns
		case <-ended:
		}
	}()
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return false, err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := errors.Join(unix.PtraceSetOptions(pid, options), unix.PtraceSyscall(pid, 0)); err != nil {
		return false, err
	}
	inside, transactions, reached := map[int]bool{}, 0, false
	for {
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return reached, err
		case tid == pid && (status.Exited() || status.Signaled()):
			return reached || at.taken && transactions == at.n, nil
		case !status.Stopped():
			continue
		}
		pass := 0
		switch sig := status.StopSignal(); sig {
		case unix.SIGTRAP, unix.SIGSTOP: // SIGSTOP: a new thread of the process
		case syscallStop:
			inside[tid] = !inside[tid]
			if transaction(tid) {
				if inside[tid] {
					transactions++
				}
				if transactions == at.n && inside[tid] != at.taken {
					reached = true
					_ = unix.Kill(pid, unix.SIGKILL) // the loop then returns
				}
			}
		default:
			pass = int(sig)
		}
		_ = unix.PtraceSyscall(tid, pass) // an error means that the thread has ended
	}
}

// transaction reports whether a thread is in a system call that sends an nftables transaction: a
// message whose first header begins a batch.
func transaction(tid int) bool {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil || regs.Orig_rax != unix.SYS_SENDMSG {
		return false
	}
	word := func(at uint64) uint64 {
		var b [8]byte
		if n, err := unix.PtracePeekData(tid, uintptr(at), b[:]); err != nil || n < len(b) {
			return 0
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	const vectors, batchBegins = 16, 0x10
	message := word(word(regs.Rsi + vectors)) // the first buffer contains the first part of the message
	return uint16(word(message)>>32) == batchBegins
}
