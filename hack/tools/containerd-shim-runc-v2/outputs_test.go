// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
)

var errStart = errors.New("no such command")

// process is a fake task service with one process, which closes its outputs as soon as it runs.
type process struct {
	task.TTRPCTaskService
	stdin, stdout, stderr string
	fails                 bool
	exit                  chan struct{}
}

func (p *process) State(context.Context, *task.StateRequest) (*task.StateResponse, error) {
	return &task.StateResponse{Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr}, nil
}

func (p *process) Start(context.Context, *task.StartRequest) (*task.StartResponse, error) {
	for _, path := range []string{p.stdout, p.stderr} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		_, err = f.WriteString("hello")
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	if p.fails {
		return nil, errStart
	}
	return &task.StartResponse{Pid: 1}, nil
}

func (p *process) Wait(ctx context.Context, _ *task.WaitRequest) (*task.WaitResponse, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.exit:
		return &task.WaitResponse{}, nil
	}
}

// outputs creates a FIFO for each output of a process, and a reader for each FIFO.
func outputs(t *testing.T) (p *process, readers []*os.File) {
	t.Helper()
	dir := t.TempDir()
	p = &process{stdout: filepath.Join(dir, "stdout"), stderr: filepath.Join(dir, "stderr"), exit: make(chan struct{})}
	for _, path := range []string{p.stdout, p.stderr} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		readers = append(readers, f)
	}
	return p, readers
}

// ended reports whether a read from the FIFO would now return EOF. The FIFO must contain no data.
func ended(t *testing.T, f *os.File) bool {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var readErr error
	if err := conn.Read(func(fd uintptr) bool {
		n, readErr = syscall.Read(int(fd), make([]byte, 1))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if readErr != nil && !errors.Is(readErr, syscall.EAGAIN) {
		t.Fatal(readErr)
	}
	return n == 0 && readErr == nil
}

// TestOutputsEndWithTheProcess checks that the output FIFOs end when the process exits, not already
// when the process closes its outputs.
func TestOutputsEndWithTheProcess(t *testing.T) {
	p, readers := outputs(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := (&outputHolder{p}).Start(ctx, &task.StartRequest{}); err != nil {
		t.Fatal(err)
	}
	cancel() // the request has ended, but the process still runs
	for _, f := range readers {
		if _, err := io.ReadFull(f, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if ended(t, f) {
			t.Errorf("%s ended before the process", filepath.Base(f.Name()))
		}
	}
	close(p.exit)
	for _, f := range readers {
		if b, err := io.ReadAll(f); err != nil || len(b) != 0 {
			t.Errorf("%s: %q, %v", filepath.Base(f.Name()), b, err)
		}
	}
}

// TestRestOfInput checks that the shim reads the rest of the input after the process has exited,
// even while other programs hold the FIFO open.
func TestRestOfInput(t *testing.T) {
	p, _ := outputs(t)
	p.stdin = filepath.Join(filepath.Dir(p.stdout), "stdin")
	if err := syscall.Mkfifo(p.stdin, 0o600); err != nil {
		t.Fatal(err)
	}
	// Like the shim's own reader, this reader keeps the FIFO open without reading.
	reader, err := os.OpenFile(p.stdin, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	writer, err := os.OpenFile(p.stdin, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := (&outputHolder{p}).Start(t.Context(), &task.StartRequest{}); err != nil {
		t.Fatal(err)
	}
	close(p.exit)
	if err := writer.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := writer.Write(make([]byte, 1<<20)); err != nil { // much more than the buffer of a FIFO
		t.Errorf("after %d bytes: %v", n, err)
	}
}

// TestFailedStartReleasesOutputs checks that no FIFO stays open if a process fails to start.
func TestFailedStartReleasesOutputs(t *testing.T) {
	p, readers := outputs(t)
	p.fails = true
	if _, err := (&outputHolder{p}).Start(t.Context(), &task.StartRequest{}); !errors.Is(err, errStart) {
		t.Fatal(err)
	}
	for _, f := range readers {
		if b, err := io.ReadAll(f); err != nil || string(b) != "hello" {
			t.Errorf("%s: %q, %v", filepath.Base(f.Name()), b, err)
		}
	}
}

// TestOtherOutputs checks that outputs that are not FIFOs are not opened.
func TestOtherOutputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := openFIFOs(os.O_RDWR, "", file, filepath.Join(t.TempDir(), "missing"), "binary:///bin/logger?id=x")
	if err != nil || len(held) != 0 {
		t.Errorf("%v, %v", held, err)
	}
}
