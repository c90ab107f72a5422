// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const (
	// root is the root of the repository.
	root = "../../.."
	// stopTimeout is how long a program may take to end after SIGTERM. Then it is killed.
	stopTimeout = time.Minute
)

// release is a release of Kubernetes whose programs stores.sh has built.
type release string

// The releases of Kubernetes.
const (
	v136 release = "1.36"
	v137 release = "1.37"
)

// program returns the path of a program of the release.
func (r release) program(name string) string {
	return filepath.Join(root, ".build", "kubernetes-"+string(r), name)
}

// needPrograms skips the test unless stores.sh runs it.
func needPrograms(t *testing.T) {
	t.Helper()
	if os.Getenv("KEELSON_STORES") == "" {
		t.Skip("runs with test/conformance/stores.sh, which builds the programs")
	}
}

// process is a program that a test has started. It ends with the test at the latest.
type process struct {
	log   string // the file with its output
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended; then err is set
	err   error
}

// start starts a program. Its output goes to the file .build/stores/TEST/LOG.log, where LOG is the
// argument log.
func start(t *testing.T, log, program string, args ...string) *process {
	t.Helper()
	dir := filepath.Join(root, ".build", "stores", t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &process{
		log: filepath.Join(dir, log+".log"), cmd: exec.Command(program, args...), ended: make(chan struct{}),
	}
	file, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", log, err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// stop ends the process if it still runs. It returns an error unless the process ended with success.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("the process did not end after SIGTERM")
	}
	if p.err != nil {
		return fmt.Errorf("%w (log: %s)", p.err, p.log)
	}
	return nil
}

// freePort returns a port on 127.0.0.1 that was free just now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
