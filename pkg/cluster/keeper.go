// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"keelson.dev/api/clock"
)

// A process that keeps ending is restarted after a pause, which doubles each time. A process that
// ran for long enough is restarted at once.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
	goodLife   = 10 * time.Second
	// stopPatience is how long a process may take to end after SIGTERM. After that time it is
	// killed.
	stopPatience = 10 * time.Second
	// A log file is rotated when it is larger than maxLog bytes; one older file is kept. The size
	// is checked at logInterval.
	maxLog      = 32 << 20
	logInterval = 15 * time.Second
)

// process describes a program that a keeper runs, and restarts when it ends.
type process struct {
	name string
	argv []string
	env  []string
	// log is the path of the file to which the program's output is appended.
	log string
	// inherit has the files that the program inherits as descriptors 3 and following.
	inherit []*os.File
	attr    *syscall.SysProcAttr
	// The function before, if set, is called before each start of the process. The start waits
	// until it returns.
	before func(ctx context.Context) error
	// If pipe is true, the process inherits the read end of a pipe, as the descriptor after those
	// of inherit. The write end is passed to started, and closed after started returns.
	pipe bool
	// started is called with the process ID after each start of the process, and ended each time
	// after the process has ended.
	started func(pid int, pipe *os.File) error
	ended   func()
	// kill makes the keeper end the process with SIGKILL, without SIGTERM first.
	kill bool
}

// keeper keeps one process running: it starts the process again when it ends. Its methods are safe
// for concurrent use.
type keeper struct {
	process
	reaper *reaper
	clock  clock.Clock
	logger *slog.Logger

	release *os.File // write end of the pipe, from the start of the process until started returns

	mu  sync.Mutex // guards pid and argv
	pid int        // 0 if the process is not running
}

// Pid returns the process ID, or 0 if the process is not running.
func (k *keeper) Pid() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pid
}

// command returns the command with which the process is started.
func (k *keeper) command() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.argv
}

// setCommand changes the command from the next start of the process on.
func (k *keeper) setCommand(argv []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.argv = argv
}

// run keeps the process running until ctx ends. Then it ends the process and returns.
func (k *keeper) run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := k.clock.Now()
		if err := k.once(ctx); err != nil && ctx.Err() == nil {
			k.logger.Error("Process ended", "process", k.name, "err", err)
		}
		pause = nextPause(pause, k.clock.Since(began))
		select {
		case <-ctx.Done():
		case <-k.clock.After(pause):
		}
	}
}

// nextPause returns how long to wait before the next start of a process. pause was the wait before
// the last start, and life is how long the process ran.
func nextPause(pause, life time.Duration) time.Duration {
	switch {
	case life >= goodLife:
		return 0
	case pause == 0:
		return firstPause
	default:
		return min(2*pause, longPause)
	}
}

// once starts the keeper's process and waits until it ends.
func (k *keeper) once(ctx context.Context) error {
	if k.before != nil {
		if err := k.before(ctx); err != nil {
			return err
		}
	}
	pid, exited, err := k.start()
	if err != nil {
		return err
	}
	defer k.setPid(0)
	if k.ended != nil {
		defer k.ended()
	}
	if err := k.afterStart(pid); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-exited
		return err
	}
	k.setPid(pid)
	ticker := k.clock.NewTicker(logInterval)
	defer ticker.Stop()
	for {
		select {
		case status := <-exited:
			return exitError(status)
		case <-ticker.C():
			if err := cutLog(k.log); err != nil {
				k.logger.Error("Failed to rotate the log of a process", "process", k.name, "err", err)
			}
		case <-ctx.Done():
			k.stop(pid, exited)
			return nil
		}
	}
}

func (k *keeper) start() (int, <-chan syscall.WaitStatus, error) {
	if err := os.MkdirAll(filepath.Dir(k.log), 0o755); err != nil {
		return 0, nil, fmt.Errorf("log directory: %w", err)
	}
	out, err := os.OpenFile(k.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, nil, fmt.Errorf("log: %w", err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, fmt.Errorf("null device: %w", err)
	}
	defer null.Close()
	files := []uintptr{null.Fd(), out.Fd(), out.Fd()}
	for _, f := range k.inherit {
		files = append(files, f.Fd())
	}
	if k.pipe {
		read, write, err := os.Pipe()
		if err != nil {
			return 0, nil, fmt.Errorf("pipe: %w", err)
		}
		defer read.Close()
		k.release = write
		files = append(files, read.Fd())
	}
	return k.reaper.start(k.command(), &syscall.ProcAttr{Dir: "/", Env: k.env, Files: files, Sys: k.attr})
}

func (k *keeper) afterStart(pid int) error {
	if k.release != nil {
		defer k.release.Close()
	}
	if k.started == nil {
		return nil
	}
	return k.started(pid, k.release)
}

// stop ends the process with SIGTERM, and with SIGKILL if it takes too long.
func (k *keeper) stop(pid int, exited <-chan syscall.WaitStatus) {
	if k.kill {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-exited
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	select {
	case <-exited:
		return
	case <-k.clock.After(stopPatience):
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-exited
}

func (k *keeper) setPid(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pid = pid
}

func exitError(status syscall.WaitStatus) error {
	if status.Signaled() {
		return fmt.Errorf("killed by %s", status.Signal())
	}
	return fmt.Errorf("exit status %d", status.ExitStatus())
}

// cutLog rotates a log that has grown too large: it copies the file and truncates the original.
// Writers use O_APPEND, so they continue at the new end of the file.
func cutLog(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Size() < maxLog {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".1", data, 0o600); err != nil {
		return err
	}
	return os.Truncate(file, 0)
}
